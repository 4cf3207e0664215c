#include "python/owned_object.h"

namespace exportguard::python {

bool interpreter_alive() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

GilAndPendingError::GilAndPendingError() noexcept : state_(PyGILState_Ensure()) {
  PyErr_Fetch(&type_, &value_, &traceback_);
}

GilAndPendingError::~GilAndPendingError() noexcept {
  PyErr_Restore(type_, value_, traceback_);
  PyGILState_Release(state_);
}

std::string text_of(const pybind11::error_already_set& error) {
  const GilAndPendingError guard;
  std::string text = reinterpret_cast<PyTypeObject*>(error.type().ptr())->tp_name;
  PyObject* const message = PyObject_Str(error.value().ptr());
  const char* const bytes = message != nullptr ? PyUnicode_AsUTF8(message) : nullptr;
  if (bytes != nullptr && *bytes != '\0') text.append(": ").append(bytes);
  Py_XDECREF(message);
  PyErr_Clear();
  return text;
}

OwnedObject::~OwnedObject() noexcept {
  if (!object_ || !interpreter_alive()) return;
  const GilAndPendingError guard;  // the object's own finalizer must not disturb an exception in flight
  Py_DECREF(object_);
}

}  // namespace exportguard::python
