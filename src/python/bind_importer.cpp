#include <exportguard/importer/functionalize.h>
#include <pybind11/stl.h>

#include "python/bindings.h"
#include "python/fx_importer.h"
#include "python/fx_memory.h"
#include "python/operator_calls.h"

namespace exportguard::python {
namespace {

using Names = std::optional<std::vector<std::string>>;

ir::Model import_named_program(const py::object& program, Names input_names, Names output_names,
                               std::map<std::string, std::string> dim_names) {
  return import_program(program, {std::move(input_names), std::move(output_names), std::move(dim_names)});
}

std::pair<std::size_t, std::size_t> functionalize(ir::Model& model) {
  const importer::FunctionalizeReport report = importer::functionalize(*model.graph);
  return {report.rewritten, report.extra_outputs};
}

}  // namespace

void bind_importer(py::module_& m) {
  m.def("import_program", &import_named_program, py::arg("program"), py::kw_only(), py::arg("input_names") = py::none(),
        py::arg("output_names") = py::none(), py::arg("dim_names") = std::map<std::string, std::string>(),
        "A torch.export.ExportedProgram as a graph of torch operators; dim_names: torch's symbol to the user's name.");
  m.def("functionalize", &functionalize, py::arg("model"), py::call_guard<py::gil_scoped_release>(),
        "Frees a graph of side effects; returns the number of writes and of outputs added for written inputs.");
  m.def("alike_in_own_memory", &alike_in_own_memory, py::arg("model"), py::arg("dtype") = py::none(),
        "A tensor without data that looks like another one without data, in memory of its own; of a dtype, if one is "
        "given, in memory that holds its elements alone.");
  m.def("seen_as", &seen_as, py::arg("model"), py::arg("sizes"), py::arg("strides"), py::arg("offset"),
        "A tensor without data that sees the memory of another one without data in sizes, strides and an offset that "
        "lie within it, which nothing checks.");
  bind_operator_calls(m);
}

}  // namespace exportguard::python
