#include <pybind11/stl.h>

#include "exportguard/evaluator/evaluator.h"
#include "python/bindings.h"
#include "python/evaluator_values.h"
#include "python/interruptible.h"

namespace exportguard::python {
namespace {

/// Keeps the model alive that its program reads.
class Evaluator {
 public:
  Evaluator(const ir::Model& model, const std::string& device) : program_(model, {device, {}, {}}) {
    for (std::size_t i = 0; i < model.graph->output_count(); ++i) {
      if (model.graph->find_output(i) != nullptr) told_.push_back(i);
    }
  }

  py::list run(const py::list& inputs) const {
    const std::vector<evaluator::Value> values = values_from_python(inputs);
    std::vector<evaluator::Value> results = without_lock([&] { return program_.run(values); });
    std::vector<evaluator::Value> told;
    for (const std::size_t i : told_) told.push_back(std::move(results[i]));
    return values_to_python(told);
  }

 private:
  evaluator::Program program_;
  std::vector<std::size_t> told_;  ///< the outputs that are not None, which are those that a model tells of
};

}  // namespace

void bind_evaluator(py::module_& m) {
  py::class_<Strings>(m, "Strings", "A tensor of strings: its elements in C order, and its sizes.")
      .def(py::init<std::vector<std::string>, std::vector<std::int64_t>>(), py::arg("elements"), py::arg("shape"))
      .def_readonly("elements", &Strings::elements)
      .def_readonly("shape", &Strings::shape);
  py::class_<Evaluator>(m, "Evaluator", "A model made ready to run with torch's kernels.")
      .def(py::init<const ir::Model&, const std::string&>(), py::arg("model"), py::arg("device") = "cpu",
           py::keep_alive<1, 2>(), py::call_guard<py::gil_scoped_release>())
      .def("run", &Evaluator::run, py::arg("inputs"),
           "One input for each of the graph: a tensor, Strings, a list of these, or None; the outputs alike.");
}

}  // namespace exportguard::python
