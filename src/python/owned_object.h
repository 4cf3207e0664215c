#pragma once

#include <Python.h>

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
