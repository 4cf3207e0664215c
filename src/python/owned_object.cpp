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

OwnedObject::~OwnedObject() noexcept {
  if (!object_ || !interpreter_alive()) return;
  const GilAndPendingError guard;  // the object's own finalizer must not disturb an exception in flight
  Py_DECREF(object_);
}

}  // namespace exportguard::python
