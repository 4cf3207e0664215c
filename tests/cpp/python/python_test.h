#pragma once

#include <gmock/gmock.h>

#include <pybind11/eval.h>

#include "python/bindings.h"

namespace exportguard::python {

/// A test that holds the GIL. The one interpreter of the process runs without any thread holding it between tests.
/// Hidden as pybind11's types are.
class __attribute__((visibility("hidden"))) PythonTest : public ::testing::Test {
 protected:
  /// The value of a Python expression, evaluated in `__main__`.
  static py::object eval(const char* expression) {
    return py::eval(expression, py::module_::import("__main__").attr("__dict__"));
  }
  /// Runs Python statements in `__main__`.
  static void exec(const char* statements) { py::exec(statements, py::module_::import("__main__").attr("__dict__")); }
  static std::string text(const char* expression) { return py::str(eval(expression)); }

 private:
  py::gil_scoped_acquire gil_;
};

}  // namespace exportguard::python
