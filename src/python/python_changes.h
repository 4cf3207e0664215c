#pragma once

#include <memory>
#include <string>

#include "exportguard/guard/change.h"
#include "python/bindings.h"

/// What a patch can change in Python. Each function needs the GIL; the change that it returns does not: it acquires the
/// GIL by itself, keeps an exception in flight, and does nothing once the interpreter has ended.
namespace exportguard::python {

/// `setattr(owner, name, value)`, for a module, a class or an instance. Its undo puts back the very object that the
/// owner's own `__dict__` held (a staticmethod stays one), or deletes the attribute where it was inherited.
/// `apply` throws AttributeError if the owner has no such attribute.
EXPORTGUARD_BINDING std::unique_ptr<guard::Change> set_attribute(py::handle owner, py::str name, py::handle value);

/// `mapping[key] = value`. Its undo puts back the item that was there, or deletes it where there was none.
EXPORTGUARD_BINDING std::unique_ptr<guard::Change> set_item(py::handle mapping, py::handle key, py::handle value);

/// `del mapping[key]`. `apply` throws KeyError if there is no such item.
EXPORTGUARD_BINDING std::unique_ptr<guard::Change> delete_item(py::handle mapping, py::handle key);

/// `apply()` and, to take it back, `undo()`; `target` says in words what is changed.
EXPORTGUARD_BINDING std::unique_ptr<guard::Change> call(py::handle apply, py::handle undo, std::string target);

}  // namespace exportguard::python
