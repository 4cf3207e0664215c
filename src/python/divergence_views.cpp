#include "python/divergence_views.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "exportguard/evaluator/evaluator.h"
#include "exportguard/optimizer/optimize.h"
#include "exportguard/serialization/settled_names.h"
#include "exportguard/validation/divergence.h"
#include "python/evaluator_values.h"
#include "python/interruptible.h"
#include "validation/alignment.h"
#include "validation/segment.h"

namespace exportguard::python {
namespace {

namespace checks = validation;

/// What Python is told of a node; the graph may be gone by then.
struct NodeView {
  std::string name;
  std::string op;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  ir::Source source;
};

NodeView view_of(const ir::Node& node) {
  NodeView view{node.name(), node.qualified_name(), {}, {}, {}};
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const ir::Value* input = node.find_input(i);
    view.inputs.push_back(input == nullptr ? std::string() : input->name());
  }
  for (std::size_t i = 0; i < node.output_count(); ++i) view.outputs.push_back(node.output(i).name());
  if (node.source() != nullptr) view.source = *node.source();
  return view;
}

std::vector<NodeView> views_of(const std::vector<const ir::Node*>& nodes) {
  std::vector<NodeView> views;
  for (const ir::Node* node : nodes) views.push_back(view_of(*node));
  return views;
}

std::vector<NodeView> views_of(const ir::Graph& graph) {
  std::vector<NodeView> views;
  for (const ir::Node& node : graph) views.push_back(view_of(node));
  return views;
}

struct DivergenceView {
  NodeView node;
  std::optional<NodeView> reference_node;
  std::vector<NodeView> nodes;
  std::vector<NodeView> reference_nodes;
  std::vector<NodeView> cleared;
  std::optional<NodeView> inside;
  std::vector<NodeView> inside_nodes;
  std::shared_ptr<checks::Divergence> found;
};

std::optional<DivergenceView> view_of(std::optional<checks::Divergence> found) {
  if (!found) return std::nullopt;
  DivergenceView view{view_of(*found->node),
                      std::nullopt,
                      views_of(found->nodes),
                      views_of(found->reference_nodes),
                      views_of(found->cleared),
                      std::nullopt,
                      {},
                      nullptr};
  if (found->inside) {
    view.inside = view_of(*found->inside->node);
    view.inside_nodes = views_of(found->inside->nodes);
  }
  if (found->reference_node != nullptr) view.reference_node = view_of(*found->reference_node);
  view.found = std::make_shared<checks::Divergence>(std::move(*found));
  return view;
}

struct ReportView {
  checks::DivergenceReport report;
  std::optional<DivergenceView> first;
};

// What the call raises is the fault of the model that it was to run, or of the runtime.
checks::RunModel runtime_of(const py::object& run) {
  if (run.is_none()) return {};
  return [run](const ir::Model& model, std::span<const evaluator::Value> inputs) {
    const py::gil_scoped_acquire acquired;
    try {
      const py::list given = values_to_python({inputs.begin(), inputs.end()});
      return values_from_python(run(py::cast(&model, py::return_value_policy::reference), given).cast<py::list>());
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_RuntimeError)) throw;  // an interrupt, or a mistake of ours
      throw evaluator::EvaluationError(py::str(error.value()).cast<std::string>());
    }
  };
}

checks::DivergenceOptions options_of(const std::string& device, std::optional<std::pair<double, double>> tolerance,
                                     std::size_t window, const py::object& run) {
  checks::DivergenceOptions options{.device = device, .tolerance = {}, .window = window, .run = runtime_of(run)};
  if (tolerance) options.tolerance = checks::Tolerance{tolerance->first, tolerance->second};
  return options;
}

/// How a value in the body of a function is called while its calls are written out: no value of a graph is.
std::string inner_name(const std::string& function, const std::string& value) {
  return fmt::format("{}/{}", function, value);
}

/// What the same operators of a program are called in one module and in another that makes the same calls.
class NamesOfModules {
 public:
  explicit NamesOfModules(const ir::Graph& program) {
    for (const ir::Node& node : program) {
      if (node.output_count() == 0 || node.source() == nullptr) continue;
      std::vector<const ir::Node*>& alike = by_place_[{node.source()->module, node.qualified_name()}];
      for (std::size_t i = 0; i < node.output_count(); ++i) {
        by_name_.emplace(node.output(i).name(), Position{&node, i, alike.size()});
      }
      alike.push_back(&node);
    }
  }

  /// Whether the program has a value of that name in that module: else the names are those of another program.
  bool has(const std::string& name, const std::string& module) const {
    const auto known = by_name_.find(name);
    return known != by_name_.end() && known->second.node->source()->module == module;
  }

  /// The value that is to `module` what the value of that name is to its own; null if there is none.
  const ir::Value* find(const std::string& name, const std::string& module) const {
    const auto known = by_name_.find(name);
    if (known == by_name_.end()) return nullptr;
    const Position& position = known->second;
    const auto alike = by_place_.find({module, position.node->qualified_name()});
    if (alike == by_place_.end() || position.among >= alike->second.size()) return nullptr;
    const ir::Node& other = *alike->second[position.among];
    return position.output < other.output_count() ? &other.output(position.output) : nullptr;
  }

 private:
  struct Position {
    const ir::Node* node;
    std::size_t output;
    std::size_t among;  ///< nodes of that operator in the module, in their order
  };
  std::map<std::pair<std::string, std::string>, std::vector<const ir::Node*>> by_place_;
  std::unordered_map<std::string, Position> by_name_;
};

/// The model without local functions. Nodes that stood in one are called after it and their first output there, and so
/// are their values, which many calls share; what a call returns has the names of the call. Where there are `names`, a
/// value that these do not know has none.
std::unique_ptr<ir::Model> without_functions(const ir::Model& model, const NamesOfModules* names = nullptr) {
  auto flat = std::make_unique<ir::Model>(checks::cut_out(model, checks::outputs_of(*model.graph)));
  for (ir::Function& function : flat->functions) {
    for (ir::Node& node : *function.body) {
      if (node.output_count() == 0) continue;
      node.set_name(inner_name(function.name, node.output().name()));
      const std::string module = node.source() != nullptr ? node.source()->module : std::string();
      for (std::size_t i = 0; i < node.output_count(); ++i) {
        const bool is_told = names == nullptr || names->has(node.output(i).name(), module);
        node.output(i).set_name(is_told ? inner_name(function.name, node.output(i).name()) : std::string());
      }
    }
    for (ir::Value* output : function.body->outputs()) {
      if (output != nullptr && output->producer() != nullptr) output->set_name({});
    }
  }
  optimizer::optimize(*flat, {.target = {}, .table = nullptr, .only = {"dead_code"}, .inlines_functions = true});
  return flat;
}

/// Gives what stood in a function the names that the program has in the module of the call, each once; what has none
/// there goes without, and is called as a file would call it.
void name_as(const NamesOfModules& names, ir::Graph& flat) {
  std::unordered_set<std::string> taken;
  for (const ir::Node& node : flat) {
    for (std::size_t i = 0; i < node.output_count(); ++i) taken.insert(node.output(i).name());
  }
  for (ir::Node& node : flat) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const std::string& name = node.output(i).name();
      const std::size_t slash = name.find('/');
      if (slash == std::string::npos || !node.name().starts_with(name.substr(0, slash + 1))) continue;
      const std::string module = node.source() != nullptr ? node.source()->module : std::string();
      const ir::Value* alike = names.find(name.substr(slash + 1), module);
      const bool is_free = alike != nullptr && taken.insert(alike->name()).second;
      node.output(i).set_name(is_free ? alike->name() : std::string());
    }
  }
}

/// Both sides without local functions; null where there are none.
struct Flat {
  std::unique_ptr<ir::Model> reference;
  std::unique_ptr<ir::Model> model;
};

Flat without_functions(const ir::Model& reference, const ir::Model& model) {
  Flat flat;
  if (!reference.functions.empty()) {
    flat.reference = without_functions(reference);
    serialization::settle_names(*flat.reference);
  }
  if (model.functions.empty()) return flat;
  const std::optional<NamesOfModules> names =
      reference.functions.empty() ? std::optional<NamesOfModules>(*reference.graph) : std::nullopt;
  flat.model = without_functions(model, names ? &*names : nullptr);
  if (names) name_as(*names, *flat.model->graph);
  serialization::settle_names(*flat.model);
  return flat;
}

ReportView find_divergence(const ir::Model& reference, const ir::Model& given, const py::list& inputs,
                           const std::string& device, std::optional<std::pair<double, double>> tolerance,
                           std::size_t window, const py::object& run) {
  const std::vector<evaluator::Value> values = values_from_python(inputs);
  const checks::DivergenceOptions options = options_of(device, tolerance, window, run);
  return without_lock([&] {
    const Flat flat = without_functions(reference, given);
    const ir::Model& expected = flat.reference != nullptr ? *flat.reference : reference;
    const ir::Model& model = flat.model != nullptr ? *flat.model : given;
    ReportView view{checks::find_divergence(expected, model, values, options), {}};
    view.first = view_of(std::move(view.report.first));
    view.report.first.reset();
    return view;
  });
}

py::dict inputs_of(const DivergenceView& view) {
  py::dict inputs;
  for (const checks::NamedValue& input : view.found->inputs) {
    inputs[py::str(input.name)] = value_to_python(input.content);
  }
  return inputs;
}

py::object beside_of(const DivergenceView& view) {
  if (!view.found->beside) return py::none();
  checks::Beside copy = view.found->beside->copy();
  return py::make_tuple(std::make_unique<ir::Model>(std::move(copy.reference)),
                        std::make_unique<ir::Model>(std::move(copy.model)), values_to_python(copy.inputs));
}

void bind_node(py::module_& m) {
  py::class_<NodeView>(m, "NodeView", "A node of a graph, and where it comes from in the user's model.")
      .def_readonly("name", &NodeView::name)
      .def_readonly("op", &NodeView::op, "`MatMul`, `com.microsoft::Gelu`, `aten.add.Tensor`.")
      .def_readonly("inputs", &NodeView::inputs, "Names; empty for what is left out.")
      .def_readonly("outputs", &NodeView::outputs)
      .def_property_readonly("target", [](const NodeView& self) { return self.source.target; })
      .def_property_readonly("module", [](const NodeView& self) { return self.source.module; })
      .def_property_readonly("type", [](const NodeView& self) { return self.source.type; })
      .def_property_readonly("file", [](const NodeView& self) { return self.source.file; })
      .def_property_readonly("line", [](const NodeView& self) { return self.source.line; })
      .def_property_readonly("code", [](const NodeView& self) { return self.source.code; })
      .def_property_readonly("where", [](const NodeView& self) { return self.source.where(); });
}

void bind_finding(py::module_& m) {
  using checks::Finding;
  py::class_<Finding>(m, "Finding", "Two values that should be the same, and how far they are apart.")
      .def_readonly("name", &Finding::name)
      .def_readonly("figures", &Finding::figures)
      .def_readonly("structural", &Finding::structural, "Why they cannot be compared value by value, or empty.")
      .def_property_readonly("agrees", &Finding::agrees)
      .def_property_readonly(
          "tolerance", [](const Finding& self) { return std::pair(self.tolerance.absolute, self.tolerance.relative); },
          "(absolute, relative).");
}

void bind_report(py::module_& m) {
  py::class_<DivergenceView>(m, "DivergenceView", "Where a model stops computing what its reference does.")
      .def_readonly("node", &DivergenceView::node)
      .def_readonly("reference_node", &DivergenceView::reference_node)
      .def_readonly("nodes", &DivergenceView::nodes, "Between right values and the wrong one.")
      .def_readonly("reference_nodes", &DivergenceView::reference_nodes)
      .def_readonly("cleared", &DivergenceView::cleared, "Those of `nodes` that right values were made of as well.")
      .def_property_readonly("finding", [](const DivergenceView& self) { return self.found->finding; })
      .def_property_readonly("inputs", &inputs_of, "Right values that the nodes read, by name.")
      .def_property_readonly("expected",
                             [](const DivergenceView& self) { return value_to_python(self.found->expected); })
      .def_property_readonly("got",
                             [](const DivergenceView& self) {
                               return self.found->got ? value_to_python(*self.found->got) : py::object(py::none());
                             })
      .def_property_readonly("error", [](const DivergenceView& self) { return self.found->error; })
      .def_readonly("inside", &DivergenceView::inside, "The node within a body of If, Loop or Scan; None elsewhere.")
      .def_readonly("inside_nodes", &DivergenceView::inside_nodes,
                    "Of that body, between right values and the wrong one.")
      .def_property_readonly("iteration",
                             [](const DivergenceView& self) {
                               return self.found->inside ? std::optional(self.found->inside->iteration) : std::nullopt;
                             })
      .def("beside", &beside_of,
           "Copies of the same place of the reference and of the model, and right values for both; None where one node "
           "alone makes the wrong value.")
      .def_property_readonly("is_runtimes_own", [](const DivergenceView& self) { return self.found->is_runtimes_own; })
      .def_property_readonly("times_rounding", [](const DivergenceView& self) { return self.found->times_rounding; })
      .def_property_readonly(
          "reproduction", [](const DivergenceView& self) -> ir::Model& { return self.found->reproduction; },
          py::return_value_policy::reference_internal, "The nodes alone.");

  py::class_<ReportView>(m, "ReportView", "What a search for a divergence found.")
      .def_readonly("first", &ReportView::first)
      .def_property_readonly("outputs", [](const ReportView& self) { return self.report.outputs; })
      .def_property_readonly("further", [](const ReportView& self) { return self.report.further; })
      .def_property_readonly("nodes", [](const ReportView& self) { return self.report.nodes; })
      .def_property_readonly("aligned", [](const ReportView& self) { return self.report.aligned; })
      .def_property_readonly("error", [](const ReportView& self) { return self.report.error; })
      .def_property_readonly("outputs_agree", [](const ReportView& self) { return self.report.outputs_agree(); });
}

}  // namespace

void bind_divergence(py::module_& m) {
  bind_node(m);
  bind_finding(m);
  bind_report(m);
  m.def(
      "nodes", [](const ir::Model& model) { return views_of(*model.graph); }, py::arg("model"),
      "The nodes of the main graph, in order.");
  m.def("settle_names", &serialization::settle_names, py::arg("model"),
        "Gives every node and value the name that a file of the model would have for it.");
  m.def("find_divergence", &find_divergence, py::arg("reference"), py::arg("model"), py::arg("inputs"), py::kw_only(),
        py::arg("device") = "cpu", py::arg("tolerance") = py::none(), py::arg("window") = std::size_t{1} << 30,
        py::arg("run") = py::none(),
        "The first node of the model that makes a wrong value of right ones. run(model, inputs) -> outputs is another "
        "runtime; window: bytes of values of one side held for the other.");
}

}  // namespace exportguard::python
