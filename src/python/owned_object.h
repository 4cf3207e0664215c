#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <string>
#include <utility>

namespace exportguard::python {

/// Whether Python objects may be touched: an interpreter runs and is not being finalized.
bool interpreter_alive() noexcept;

/// Holds the GIL, and keeps an exception that was in flight when it was made. Needs a living interpreter.
class GilAndPendingError {
 public:
  GilAndPendingError() noexcept;
  GilAndPendingError(const GilAndPendingError&) = delete;
  GilAndPendingError& operator=(const GilAndPendingError&) = delete;
  ~GilAndPendingError() noexcept;

 private:
  PyGILState_STATE state_;
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

/// The class and the text of a Python exception. What pybind11 composes runs Python code, which ends the process where
/// Python is at the limit of its recursion; this runs none but the `__str__` of the exception, and does without that if
/// it fails. Needs the GIL.
std::string text_of(const pybind11::error_already_set& error);

/// One reference to a Python object that may be dropped on any thread, without the GIL, and after the interpreter has
/// ended (the object is then left alone). A py::object may not.
class OwnedObject {
 public:
  OwnedObject() = default;
  /// Takes a new reference to `object`, which may be null. Needs the GIL.
  explicit OwnedObject(PyObject* object) noexcept : object_(Py_XNewRef(object)) {}
  OwnedObject(OwnedObject&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  OwnedObject& operator=(OwnedObject&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~OwnedObject() noexcept;

  PyObject* get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace exportguard::python
