#pragma once

#include "exportguard/common/errors.h"
#include "exportguard/guard/declaration.h"
#include "exportguard/guard/options.h"
#include "python/bindings.h"

/// Python's patches as declarations of the C++ guard.
namespace exportguard::python {

/// A patch's own Python code failed. Hidden as pybind11's exceptions are: it never leaves this library. A C++ caller
/// sees the text; `rethrow` gives a Python caller the exception itself.
class __attribute__((visibility("hidden"))) PatchCodeError : public GuardError {
 public:
  PatchCodeError(const std::string& what, py::error_already_set cause)
      : GuardError(what), cause_(std::make_shared<py::error_already_set>(std::move(cause))) {}
  [[noreturn]] void rethrow() const { throw py::error_already_set(*cause_); }

 private:
  std::shared_ptr<py::error_already_set> cause_;
};

/// `patch` is an `exportguard.declaration.Patch`: attributes name, kind, targets, searches, reason, upstream,
/// versions; methods `verdict() -> (str, str)`, `install(changes)`, `told() -> (str, [str], str)` and `dump(folder)`.
EXPORTGUARD_BINDING guard::PatchDeclaration declaration_of(const py::object& patch);

/// `options` is an `exportguard.guard.PatchOptions`, read field by field.
EXPORTGUARD_BINDING PatchOptions options_of(const py::object& options);

/// Defines the class that `Patch.install` receives.
void bind_changes(py::module_& m);

}  // namespace exportguard::python
