#include "python/python_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

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
    try {
      undo_with_gil();
    } catch (const py::error_already_set& error) {
      throw std::runtime_error(text_of(error));  // whoever catches it does not hold the GIL
    }
  }

 private:
  virtual void apply_with_gil() = 0;
  virtual void undo_with_gil() = 0;

  std::string target_;
};

/// A change of one place: an attribute or an item. Changes of one place need not be undone in the order of their
/// making, since registrations outlive guards and guards outlive registrations: one that is not the last of its place
/// hands what it found to the next one, which puts that back in its turn.
class SlotChange : public PythonChange {
 public:
  SlotChange(std::string target, py::handle owner, py::handle key)
      : PythonChange(std::move(target)), owner_(owner.ptr()), key_(key.ptr()) {}
  ~SlotChange() override {
    const std::lock_guard lock(mutex());
    std::erase(in_force(), this);
  }

 protected:
  void note_in_force() {
    const std::lock_guard lock(mutex());
    in_force().push_back(this);
  }

  /// The next change of the same place that is in force, null if this was the last.
  SlotChange* end_force() {
    std::vector<SlotChange*> later;
    {
      const std::lock_guard lock(mutex());
      const auto self = std::ranges::find(in_force(), this);
      if (self == in_force().end()) return nullptr;
      later.assign(self + 1, in_force().end());
      in_force().erase(self);
    }
    const auto next = std::ranges::find_if(later, [&](const SlotChange* other) { return is_same_place(*other); });
    return next == later.end() ? nullptr : *next;
  }

  OwnedObject owner_;
  OwnedObject key_;
  OwnedObject old_;

 private:
  virtual bool is_item() const = 0;

  bool is_same_place(const SlotChange& other) const {
    if (owner_.get() != other.owner_.get() || is_item() != other.is_item()) return false;
    const int is_equal = PyObject_RichCompareBool(key_.get(), other.key_.get(), Py_EQ);
    if (is_equal < 0) PyErr_Clear();
    return is_equal > 0;
  }

  // Never destroyed: a change may be dropped while the process ends.
  static std::vector<SlotChange*>& in_force() {
    static auto* const changes = new std::vector<SlotChange*>;
    return *changes;
  }
  static std::mutex& mutex() {
    static auto* const made = new std::mutex;
    return *made;
  }
};

class AttributeChange final : public SlotChange {
 public:
  AttributeChange(py::handle owner, py::handle name, py::handle value)
      : SlotChange(fmt::format("{}.{}", short_name(owner), std::string(py::str(name))), owner, name),
        value_(value.ptr()) {}

 private:
  enum class Undo { kPutBack, kDelete };

  bool is_item() const override { return false; }

  void apply_with_gil() override {
    const py::object owner = borrow(owner_);
    const py::object name = borrow(key_);
    const py::object own = own_attribute(owner, name);
    const py::object seen = own ? own : py::getattr(owner, name);  // throws where there is nothing to patch
    set(owner, name, borrow(value_));
    // A new entry of the own dictionary shadows what was inherited. An attribute that is kept elsewhere (a slot, a
    // property, a parameter of a torch.nn.Module) has to be set back.
    undo_ = !own && own_attribute(owner, name) ? Undo::kDelete : Undo::kPutBack;
    old_ = OwnedObject(seen.ptr());
    note_in_force();
  }

  void undo_with_gil() override {
    if (auto* const next = static_cast<AttributeChange*>(end_force())) {
      next->old_ = std::move(old_);
      next->undo_ = undo_;
      return;
    }
    PyObject* const value = undo_ == Undo::kDelete ? nullptr : old_.get();
    set(owner_.get(), key_.get(), value);
  }

  OwnedObject value_;
  Undo undo_ = Undo::kPutBack;
};

class ItemChange final : public SlotChange {
 public:
  /// A null `value` deletes.
  ItemChange(py::handle mapping, py::handle key, py::handle value)
      : SlotChange(fmt::format("item {}", std::string(py::repr(key))), mapping, key), value_(value.ptr()) {}

 private:
  bool is_item() const override { return true; }

  void apply_with_gil() override {
    const py::object mapping = borrow(owner_);
    const py::object key = borrow(key_);
    old_ = mapping.contains(key) || !value_ ? OwnedObject(py::object(mapping[key]).ptr()) : OwnedObject();
    assign(value_);
    note_in_force();
  }

  void undo_with_gil() override {
    if (auto* const next = static_cast<ItemChange*>(end_force())) {
      next->old_ = std::move(old_);
      return;
    }
    assign(old_);
  }

  void assign(const OwnedObject& value) {
    const int failed =
        value ? PyObject_SetItem(owner_.get(), key_.get(), value.get()) : PyObject_DelItem(owner_.get(), key_.get());
    if (failed) throw py::error_already_set();
  }

  OwnedObject value_;
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
