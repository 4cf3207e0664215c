#include "python/declared_patch.h"

#include <exportguard/guard/session.h>
#include <fmt/format.h>
#include <pybind11/stl.h>

#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "python/owned_object.h"
#include "python/python_changes.h"

namespace exportguard::python {
namespace {

/// What a patch writes its changes to. Python may keep it longer than the guard lives; it then refuses.
class Changes {
 public:
  Changes(guard::PatchStack* stack, std::uint64_t frame) : stack_(stack), frame_(frame) {}
  virtual ~Changes() = default;
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;
  void detach() noexcept { stack_ = nullptr; }

  void apply(std::unique_ptr<guard::Change> change) {
    if (!stack_) throw GuardError("the changes of a patch can only be made while it is being installed");
    stack_->apply(std::move(change));
  }

  std::uint64_t frame() const noexcept { return frame_; }

 private:
  guard::PatchStack* stack_;
  std::uint64_t frame_;  ///< 0 outside a guard
};

/// Calls `code` with what it may write its changes to meanwhile.
void run_with_changes(const py::handle& code, guard::PatchStack& stack, std::uint64_t frame) {
  const auto changes = std::make_shared<Changes>(&stack, frame);
  try {
    code(changes);
  } catch (...) {
    changes->detach();
    throw;
  }
  changes->detach();
}

/// Changes that stay until they are undone by hand: registrations made outside a guard.
class KeptChanges : public Changes {
 public:
  KeptChanges() : Changes(&own_, 0) {}

  void undo() {
    const std::vector<std::string> failures = own_.unwind_to(0);
    if (!failures.empty()) throw GuardError("could not be restored: " + failures.front());
  }

  guard::PatchStack& stack() noexcept { return own_; }

 private:
  guard::PatchStack own_;
};

/// Changes that a patch makes after its install, for as long as its guard is open or until they are undone by hand.
class LaterChanges {
 public:
  explicit LaterChanges(std::uint64_t frame) : frame_(frame) {}
  explicit LaterChanges(const std::shared_ptr<KeptChanges>& kept) : kept_(kept) {}

  void run(const py::object& code) const {
    if (const std::shared_ptr<KeptChanges> kept = kept_.lock()) return run_with_changes(code, kept->stack(), 0);
    if (frame_ == 0) throw GuardError("the changes that a patch waited with are undone");
    guard::Session::process().change_later(frame_,
                                           [&](guard::PatchStack& stack) { run_with_changes(code, stack, frame_); });
  }

  bool is_here() const { return kept_.lock() != nullptr || (frame_ != 0 && guard::Session::process().is_ours(frame_)); }

  void tell(const std::string& patch, const guard::Told& told) const {
    if (frame_ != 0) guard::Session::process().amend(frame_, patch, told);
  }

 private:
  std::uint64_t frame_ = 0;
  std::weak_ptr<KeptChanges> kept_;
};

LaterChanges later(const std::shared_ptr<Changes>& changes) {
  if (const auto kept = std::dynamic_pointer_cast<KeptChanges>(changes)) return LaterChanges(kept);
  return LaterChanges(changes->frame());
}

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

guard::Told told_of(const py::handle& told) {
  auto [outcome, targets, reason] = py::cast<std::tuple<std::string, std::vector<std::string>, std::string>>(told);
  return {guard::outcome(outcome), std::move(targets), std::move(reason)};
}

void install(const py::handle& patch, guard::PatchStack& stack) {
  run_with_changes(patch.attr("install"), stack, guard::Session::process().top());
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
    const std::string what = fmt::format("cannot {} patch '{}': {}", doing, name, text_of(error));
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
  declaration.searches = text(patch, "searches");
  declaration.reason = text(patch, "reason");
  declaration.upstream = text(patch, "upstream");
  declaration.versions = text(patch, "versions");

  declaration.probe = [name = declaration.name, owned = shared(patch)] {
    return run_patch_code(name, "probe", [&] { return probe(handle_of(owned)); });
  };
  declaration.install = [name = declaration.name, owned = shared(patch)](guard::PatchStack& stack) {
    run_patch_code(name, "install", [&] { install(handle_of(owned), stack); });
  };
  declaration.told = [name = declaration.name, owned = shared(patch)] {
    return run_patch_code(name, "ask", [&] { return told_of(handle_of(owned).attr("told")()); });
  };
  declaration.dump = [name = declaration.name, owned = shared(patch)](const std::string& folder) {
    run_patch_code(name, "write", [&] { handle_of(owned).attr("dump")(folder); });
  };
  return declaration;
}

PatchOptions options_of(const py::object& options) {
  PatchOptions result;
  result.patch = py::cast<bool>(options.attr("patch"));
  for (const guard::Kind& kind : guard::kinds())
    if (kind.is_wanted != nullptr)
      result.*kind.is_wanted = py::cast<bool>(options.attr(std::string(kind.option).c_str()));
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
          py::arg("apply"), py::arg("undo"), py::arg("target"), "apply() now, undo() when the guard ends.")
      .def("later", &later, "What the patch makes its changes with after the install.");

  py::class_<LaterChanges>(m, "LaterChanges", "Changes after the install of a patch, on the same stack.")
      .def("run", &LaterChanges::run, py::arg("install"),
           "install(changes), which are those of the guard whose patch it is; undone if it raises.")
      .def(
          "tell",
          [](const LaterChanges& self, const std::string& patch, const py::tuple& told) {
            self.tell(patch, told_of(told));
          },
          py::arg("patch"), py::arg("told"), "Writes (outcome, targets, reason) into the guard's report.")
      .def_property_readonly("is_here", &LaterChanges::is_here, "Whether this thread may run them.");

  py::class_<KeptChanges, Changes, std::shared_ptr<KeptChanges>>(m, "KeptChanges", "Changes outside a guard.")
      .def(py::init<>())
      .def("undo", &KeptChanges::undo, "Takes everything back, last first.");
}

}  // namespace exportguard::python
