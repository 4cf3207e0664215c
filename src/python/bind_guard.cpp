#include <exportguard/guard/export_patches.h>
#include <exportguard/guard/session.h>
#include <pybind11/stl.h>

#include "python/bindings.h"
#include "python/declared_patch.h"
#include "python/module_tree.h"
#include "python/namespaces.h"
#include "python/size_conditions.h"
#include "python/write_watch.h"

namespace exportguard::python {
namespace {

/// Opens the guard; a patch's own exception reaches Python as it was raised.
std::unique_ptr<ExportPatches> open_guard(const py::object& options) {
  try {
    return std::make_unique<ExportPatches>(options_of(options));
  } catch (const PatchCodeError& error) {
    error.rethrow();
  }
}

std::vector<py::object> report_lines(const ExportPatches& guard) {
  std::vector<py::object> lines;
  for (const guard::ReportLine& line : guard.report().lines)
    lines.push_back(py::make_tuple(line.name, name_of(line.kind), line.targets, name_of(line.outcome), line.reason));
  return lines;
}

std::vector<std::string> patch_names() {
  std::vector<std::string> names;
  for (const guard::Registry::Entry& entry : guard::Registry::process().entries()) names.push_back(entry->name);
  return names;
}

std::vector<std::pair<std::string_view, std::string_view>> patch_kinds() {
  std::vector<std::pair<std::string_view, std::string_view>> kinds;
  for (const guard::Kind& kind : guard::kinds()) kinds.emplace_back(kind.name, kind.option);
  return kinds;
}

void bind_export_patches(py::module_& m) {
  py::class_<ExportPatches>(m, "ExportPatches", "An open guard. See exportguard.torch_export_patches.")
      .def(py::init(&open_guard), py::arg("options"))
      .def("close", &ExportPatches::close, "Restores everything; a second call does nothing.")
      .def_property_readonly("is_open", &ExportPatches::is_open)
      .def_property_readonly("lines", &report_lines, "(name, kind, targets, outcome, reason) of each patch.")
      .def_property_readonly("restore_failures",
                             [](const ExportPatches& self) { return self.report().restore_failures; })
      .def("text", [](const ExportPatches& self) { return self.report().text(); });
}

}  // namespace

void bind_guard(py::module_& m) {
  bind_changes(m);
  bind_export_patches(m);
  bind_write_watch(m);
  bind_module_tree(m);
  bind_namespaces(m);
  bind_size_conditions(m);
  m.def(
      "declare_patch", [](const py::object& patch) { guard::Registry::process().add(declaration_of(patch)); },
      py::arg("patch"), "Makes the patch known to every guard of this process, C++ guards too.");
  m.def(
      "forget_patch", [](const std::string& name) { return guard::Registry::process().remove(name); }, py::arg("name"),
      "Undoes declare_patch; returns whether there was such a patch.");
  m.def("patch_names", &patch_names, "The names of the declared patches, in the order of their declaration.");
  m.def("patch_kinds", &patch_kinds, "Every kind of patches, with the option that switches it; empty without one.");
  m.def("guard_depth", [] { return guard::Session::process().depth(); }, "The number of open guards of this process.");
}

}  // namespace exportguard::python
