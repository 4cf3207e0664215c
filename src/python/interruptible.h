#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "exportguard/evaluator/interruption.h"

namespace exportguard::python {

/// Whether a signal (Ctrl-C) has come whose handler raises; the exception is set then.
inline bool has_signal() {
  const pybind11::gil_scoped_acquire acquired;
  return PyErr_CheckSignals() != 0;
}

/// What `work` gives, which may evaluate a graph and is run without the interpreter's lock. Ctrl-C ends it.
template <typename Work>
auto without_lock(Work&& work) {
  try {
    const pybind11::gil_scoped_release released;
    const evaluator::Interruptible scope(&has_signal);
    return std::forward<Work>(work)();
  } catch (const evaluator::Interrupted&) {
    throw pybind11::error_already_set();
  }
}

}  // namespace exportguard::python
