#include "python/fx_importer.h"

#include <exportguard/common/errors.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>

#include <unordered_map>
#include <unordered_set>

#include "importer/program.h"
#include "python/fx_graph.h"
#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

std::string text_or_empty(py::handle object) {
  return PyUnicode_Check(object.ptr()) ? std::string(text_of(object)) : std::string();
}

/// Names of the members of an enum, which Python computes anew each time it is asked.
class MemberNames {
 public:
  const std::string& of(const py::object& member) {
    const auto [row, is_new] = names_.try_emplace(member.ptr());  // an enum's members are never freed
    if (is_new) row->second = member.attr("name").cast<std::string>();
    return row->second;
  }

 private:
  std::unordered_map<PyObject*, std::string> names_;
};

importer::Signature signature_of(const py::object& program) {
  const py::object given = program.attr("graph_signature");
  importer::Signature signature;
  MemberNames kinds;
  for (const py::handle spec : py::list(given.attr("input_specs"))) {
    signature.inputs.push_back({.placeholder = spec.attr("arg").attr("name").cast<std::string>(),
                                .kind = kinds.of(spec.attr("kind")),
                                .target = text_or_empty(spec.attr("target")),
                                .is_persistent = spec.attr("persistent").ptr() != Py_False});
  }
  for (const py::handle spec : py::list(given.attr("output_specs")))
    signature.outputs.push_back({kinds.of(spec.attr("kind")), text_or_empty(spec.attr("target"))});
  return signature;
}

/// Walks over the objects of a program; what they mean as a whole is `importer::Program`'s.
class ProgramReader {
 public:
  ProgramReader(const py::object& program, const FxImportOptions& options)
      : object_(program),
        program_(signature_of(program), {options.input_names, options.output_names}),
        context_(options.dim_names, *model_.graph),
        state_(program.attr("state_dict")),
        constants_(program.attr("constants")) {}

  ir::Model read() {
    program_.reserve_names(context_.weights);
    FxGraphReader reader(context_, *model_.graph, object_.attr("graph_module"));
    const std::vector<FxValue> results =
        reader.read([this](const std::string& name, py::handle example) { return placeholder(name, example); });
    program_.add_outputs(*model_.graph, results.size(), [&](std::size_t index, const std::string& constant) {
      return output_value(context_, results[index], constant);
    });
    if (context_.has_writes) context_.memory.mark(context_.types);
    return std::move(model_);
  }

 private:
  FxValue placeholder(const std::string& name, py::handle example) {
    const importer::InputSpec& spec = program_.input(name);
    if (spec.is_user_input()) return user_input(name, example);
    FxValue value;
    value.value = &context_.initializer(spec.target, weight(spec));
    return value;
  }

  FxValue user_input(const std::string& placeholder, py::handle example) {
    const std::string name = program_.next_input_name(placeholder);
    FxValue value;
    value.literal = find_literal(example);
    if (value.literal) return value;
    const ir::Type type = context_.types.type(example);
    if (type.dtype == DType::kUndefined) {
      const char* kind = example ? Py_TYPE(example.ptr())->tp_name : "placeholder without an example value";
      throw ImportError(
          fmt::format("input {} is a {}; only tensors, numbers, texts and None can be converted", name, kind));
    }
    value.value = &model_.graph->add_input(name, type);
    return value;
  }

  py::object weight(const importer::InputSpec& spec) {
    const bool is_constant = importer::Program::store_of(spec) == importer::Store::kConstants;
    const py::object& tensors = is_constant && constants_.contains(spec.target) ? constants_ : state_;
    if (!tensors.contains(spec.target)) {
      throw ImportError(fmt::format("the program has no tensor for {} '{}'", spec.kind, spec.target));
    }
    py::object tensor = tensors[spec.target.c_str()];
    if (!THPVariable_Check(tensor.ptr())) {
      throw ImportError(fmt::format("the program has a {} for {} '{}', which is no tensor",
                                    Py_TYPE(tensor.ptr())->tp_name, spec.kind, spec.target));
    }
    return tensor;
  }

  const py::object& object_;
  ir::Model model_;
  importer::Program program_;
  FxContext context_;
  py::object state_;
  py::object constants_;
};

/// Keeps Python's collector of cycles away: each node that is read makes some objects, so it would walk over the whole
/// program again and again. Those objects go by their reference counts.
class CollectorPause {
 public:
  CollectorPause() = default;
  ~CollectorPause() {
    if (was_enabled_) PyGC_Enable();
  }
  CollectorPause(const CollectorPause&) = delete;
  CollectorPause& operator=(const CollectorPause&) = delete;

 private:
  const bool was_enabled_ = PyGC_Disable() != 0;
};

}  // namespace

namespace {

std::string without_number(const std::string& name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  const bool has_number = last != std::string::npos && last + 1 < name.size() && last > 0 && name[last] == '_';
  return has_number ? name.substr(0, last) : name;
}

// Calls in blocks that were not traced again come under the names of the first block. A name is what a value of the
// program and that of its model have in common, and a file would give them numbers that are others' names.
// Each body of torch's has names of its own, those of ONNX share them with all around: the main graph comes first.
void collect_alike(ir::Graph& graph, std::unordered_set<std::string>& taken, std::vector<ir::Value*>& alike) {
  for (ir::Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      ir::Value& value = node.output(i);
      if (!value.name().empty() && !taken.insert(value.name()).second) alike.push_back(&value);
    }
  }
  for (ir::Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) collect_alike(*body, taken, alike);
  }
}

void name_apart(ir::Graph& graph) {
  std::unordered_set<std::string> taken;
  std::vector<ir::Value*> alike;
  for (const auto& input : graph.inputs()) taken.insert(input->name());
  collect_alike(graph, taken, alike);

  std::unordered_map<std::string, std::size_t> next;
  for (ir::Value* value : alike) {
    const std::string stem = without_number(value->name());
    std::string name;
    do {
      name = fmt::format("{}_{}", stem, ++next[stem]);
    } while (!taken.insert(name).second);
    value->set_name(std::move(name));
  }
}

}  // namespace

ir::Model import_program(const py::object& program, const FxImportOptions& options) {
  if (!py::hasattr(program, "graph_signature") || !py::hasattr(program, "graph_module")) {
    throw InvalidArgument(
        fmt::format("program must be a torch.export.ExportedProgram, got {}; call torch.export.export "
                    "first",
                    Py_TYPE(program.ptr())->tp_name));
  }
  const CollectorPause pause;
  ir::Model model = ProgramReader(program, options).read();
  name_apart(*model.graph);
  return model;
}

std::unique_ptr<ir::Graph> import_graph_module(const py::object& graph_module,
                                               const std::map<std::string, std::string>& dim_names) {
  auto graph = std::make_unique<ir::Graph>();
  FxContext context(dim_names, *graph);
  FxGraphReader reader(context, *graph, graph_module);
  const auto results = reader.read([&](const std::string& name, py::handle example) {
    FxValue value;
    value.value = &graph->add_input(name, context.types.type(example));
    return value;
  });
  for (const FxValue& value : results) graph->add_output(output_value(context, value, "constant"));
  if (context.has_writes) context.memory.mark(context.types);
  return graph;
}

}  // namespace exportguard::python
