#include "python/declared_patch.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "python/owned_object.h"
#include "python/python_changes.h"

namespace exportguard::python {
namespace {

/// What a patch writes its changes to. Python may keep it longer than the guard lives; it then refuses.
class Changes {
 public:
  explicit Changes(guard::PatchStack* stack) : stack_(stack) {}
  void detach() noexcept { stack_ = nullptr; }

  void apply(std::unique_ptr<guard::Change> change) {
    if (!stack_) throw GuardError("the changes of a patch can only be made while it is being installed");
    stack_->apply(std::move(change));
  }

 private:
  guard::PatchStack* stack_;
};

/// Changes that stay until they are undone by hand: registrations made outside a guard.
class KeptChanges : public Changes {
 public:
  KeptChanges() : Changes(&own_) {}

  void undo() {
    const std::vector<std::string> failures = own_.unwind_to(0);
    if (!failures.empty()) throw GuardError("could not be restored: " + failures.front());
  }

 private:
  guard::PatchStack own_;
};

std::string text(const py::object& patch, const char* attribute) {
  return py::cast<std::string>(patch.attr(attribute));
}

/// Copies share one reference; the last one may go away on any thread, without the GIL.
std::shared_ptr<const OwnedObject> shared(const py::object& object) {
  return std::make_shared<const OwnedObject>(object.ptr());
}

py::handle handle_of(const std::shared_ptr<const OwnedObject>& object) { return object->get(); }

guard::Verdict probe(const py::handle& patch) {
  const auto [fit, reason] = py::cast<std::pair<std::string, std::string>>(patch.attr("verdict")());
  return {guard::fit(fit), reason};
}

void install(const py::handle& patch, guard::PatchStack& stack) {
  const auto changes = std::make_shared<Changes>(&stack);
  try {
    patch.attr("install")(changes);
  } catch (...) {
    changes->detach();
    throw;
  }
  changes->detach();
}

/// Runs `code` under the GIL and gives its failure the patch's name.
template <class Code>
auto run_patch_code(const std::string& name, const char* doing, const Code& code) {
  if (!interpreter_alive())
    throw GuardError(fmt::format("cannot {} patch '{}': the Python interpreter is not running", doing, name));
  const py::gil_scoped_acquire gil;
  try {
    return code();
  } catch (py::error_already_set& error) {
    const std::string what = fmt::format("cannot {} patch '{}': {}", doing, name, error.what());
    throw PatchCodeError(what, std::move(error));
  }
}

std::vector<guard::PatchDeclaration> declarations_of(const py::object& patches) {
  std::vector<guard::PatchDeclaration> declarations;
  for (const py::handle patch : py::list(patches))
    declarations.push_back(declaration_of(py::reinterpret_borrow<py::object>(patch)));
  return declarations;
}

}  // namespace

guard::PatchDeclaration declaration_of(const py::object& patch) {
  guard::PatchDeclaration declaration;
  declaration.name = text(patch, "name");
  declaration.kind = guard::patch_kind(text(patch, "kind"));
  declaration.targets = py::cast<std::vector<std::string>>(patch.attr("targets"));
  declaration.reason = text(patch, "reason");
  declaration.upstream = text(patch, "upstream");
  declaration.versions = text(patch, "versions");
  declaration.probe = [name = declaration.name, owned = shared(patch)] {
    return run_patch_code(name, "probe", [&] { return probe(handle_of(owned)); });
  };
  declaration.install = [name = declaration.name, owned = shared(patch)](guard::PatchStack& stack) {
    run_patch_code(name, "install", [&] { install(handle_of(owned), stack); });
  };
  declaration.dump = [name = declaration.name, owned = shared(patch)](const std::string& folder) {
    run_patch_code(name, "write", [&] { handle_of(owned).attr("dump")(folder); });
  };
  return declaration;
}

PatchOptions options_of(const py::object& options) {
  const auto flag = [&](const char* name) { return py::cast<bool>(options.attr(name)); };
  PatchOptions result;
  result.patch = flag("patch");
  result.serializers = flag("serializers");
  result.patch_sympy = flag("patch_sympy");
  result.patch_torch = flag("patch_torch");
  result.patch_transformers = flag("patch_transformers");
  result.patch_diffusers = flag("patch_diffusers");
  result.catch_constraints = flag("catch_constraints");
  result.stop_if_static = py::cast<int>(options.attr("stop_if_static"));
  result.dump_rewriting = text(options, "dump_rewriting");
  result.custom_patches = declarations_of(options.attr("custom_patches"));
  result.rewrite = declarations_of(options.attr("rewrite"));
  return result;
}

void bind_changes(py::module_& m) {
  py::class_<Changes, std::shared_ptr<Changes>>(m, "Changes", "What a patch writes its changes to.")
      .def(
          "set_attribute",
          [](Changes& self, const py::object& owner, const py::str& name, const py::object& value) {
            self.apply(set_attribute(owner, name, value));
          },
          py::arg("owner"), py::arg("name"), py::arg("value"), "setattr(owner, name, value) until the guard ends.")
      .def(
          "set_item",
          [](Changes& self, const py::object& mapping, const py::object& key, const py::object& value) {
            self.apply(set_item(mapping, key, value));
          },
          py::arg("mapping"), py::arg("key"), py::arg("value"), "mapping[key] = value until the guard ends.")
      .def(
          "delete_item",
          [](Changes& self, const py::object& mapping, const py::object& key) {
            self.apply(delete_item(mapping, key));
          },
          py::arg("mapping"), py::arg("key"), "del mapping[key] until the guard ends.")
      .def(
          "call",
          [](Changes& self, const py::object& apply, const py::object& undo, std::string target) {
            self.apply(call(apply, undo, std::move(target)));
          },
          py::arg("apply"), py::arg("undo"), py::arg("target"), "apply() now, undo() when the guard ends.");
  py::class_<KeptChanges, Changes, std::shared_ptr<KeptChanges>>(m, "KeptChanges", "Changes outside a guard.")
      .def(py::init<>())
      .def("undo", &KeptChanges::undo, "Takes everything back, last first.");
}

}  // namespace exportguard::python
