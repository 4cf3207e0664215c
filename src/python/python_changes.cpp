#include "python/python_changes.h"

#include <fmt/format.h>

#include "python/owned_object.h"

namespace exportguard::python {
namespace {

py::object borrow(const OwnedObject& object) { return py::reinterpret_borrow<py::object>(object.get()); }

std::string short_name(py::handle object) {
  if (py::hasattr(object, "__qualname__") && py::hasattr(object, "__module__"))
    return fmt::format("{}.{}", std::string(py::str(object.attr("__module__"))),
                       std::string(py::str(object.attr("__qualname__"))));
  if (PyModule_Check(object.ptr())) return py::str(object.attr("__name__"));
  return fmt::format("a {}", Py_TYPE(object.ptr())->tp_name);
}

void set(py::handle owner, py::handle name, py::handle value) {
  if (PyObject_SetAttr(owner.ptr(), name.ptr(), value.ptr()) != 0) throw py::error_already_set();
}

/// The object itself as the owner's own dictionary holds it, no descriptor bound; null if it is not there.
py::object own_attribute(py::handle owner, py::handle name) {
  if (!py::hasattr(owner, "__dict__")) return {};
  const py::object own = owner.attr("__dict__");
  if (!own.contains(name)) return {};
  return own[name];
}

/// A change of Python objects: undone under the GIL, and only while there is an interpreter.
class PythonChange : public guard::Change {
 public:
  explicit PythonChange(std::string target) : target_(std::move(target)) {}
  std::string target() const override { return target_; }

  void apply() override {
    const py::gil_scoped_acquire gil;
    apply_with_gil();
  }

  void undo() override {
    if (!interpreter_alive()) return;
    const GilAndPendingError guard;
    undo_with_gil();
  }

 private:
  virtual void apply_with_gil() = 0;
  virtual void undo_with_gil() = 0;

  std::string target_;
};

class AttributeChange final : public PythonChange {
 public:
  AttributeChange(py::handle owner, py::handle name, py::handle value)
      : PythonChange(fmt::format("{}.{}", short_name(owner), std::string(py::str(name)))),
        owner_(owner.ptr()),
        name_(name.ptr()),
        value_(value.ptr()) {}

 private:
  enum class Undo { kPutBack, kDelete };

  void apply_with_gil() override {
    const py::object owner = borrow(owner_);
    const py::object name = borrow(name_);
    const py::object own = own_attribute(owner, name);
    const py::object seen = own ? own : py::getattr(owner, name);  // throws where there is nothing to patch
    set(owner, name, borrow(value_));
    // A new entry of the own dictionary shadows what was inherited. An attribute that is kept elsewhere (a slot, a
    // property, a parameter of a torch.nn.Module) has to be set back.
    undo_ = !own && own_attribute(owner, name) ? Undo::kDelete : Undo::kPutBack;
    old_ = OwnedObject(seen.ptr());
  }

  void undo_with_gil() override {
    PyObject* const value = undo_ == Undo::kDelete ? nullptr : old_.get();
    set(owner_.get(), name_.get(), value);
  }

  OwnedObject owner_;
  OwnedObject name_;
  OwnedObject value_;
  OwnedObject old_;
  Undo undo_ = Undo::kPutBack;
};

class ItemChange final : public PythonChange {
 public:
  /// A null `value` deletes.
  ItemChange(py::handle mapping, py::handle key, py::handle value)
      : PythonChange(fmt::format("item {}", std::string(py::repr(key)))),
        mapping_(mapping.ptr()),
        key_(key.ptr()),
        value_(value.ptr()) {}

 private:
  void apply_with_gil() override {
    const py::object mapping = borrow(mapping_);
    const py::object key = borrow(key_);
    old_ = mapping.contains(key) || !value_ ? OwnedObject(py::object(mapping[key]).ptr()) : OwnedObject();
    assign(value_);
  }

  void undo_with_gil() override { assign(old_); }

  void assign(const OwnedObject& value) {
    const int failed = value ? PyObject_SetItem(mapping_.get(), key_.get(), value.get())
                             : PyObject_DelItem(mapping_.get(), key_.get());
    if (failed) throw py::error_already_set();
  }

  OwnedObject mapping_;
  OwnedObject key_;
  OwnedObject value_;
  OwnedObject old_;
};

class CallChange final : public PythonChange {
 public:
  CallChange(py::handle apply, py::handle undo, std::string target)
      : PythonChange(std::move(target)), apply_(apply.ptr()), undo_(undo.ptr()) {}

 private:
  void apply_with_gil() override { borrow(apply_)(); }
  void undo_with_gil() override { borrow(undo_)(); }

  OwnedObject apply_;
  OwnedObject undo_;
};

}  // namespace

std::unique_ptr<guard::Change> set_attribute(py::handle owner, py::str name, py::handle value) {
  return std::make_unique<AttributeChange>(owner, name, value);
}

std::unique_ptr<guard::Change> set_item(py::handle mapping, py::handle key, py::handle value) {
  return std::make_unique<ItemChange>(mapping, key, value);
}

std::unique_ptr<guard::Change> delete_item(py::handle mapping, py::handle key) {
  return std::make_unique<ItemChange>(mapping, key, py::handle());
}

std::unique_ptr<guard::Change> call(py::handle apply, py::handle undo, std::string target) {
  return std::make_unique<CallChange>(apply, undo, std::move(target));
}

}  // namespace exportguard::python
