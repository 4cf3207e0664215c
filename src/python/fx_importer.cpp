#include "python/fx_importer.h"

#include <exportguard/common/errors.h>
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "python/fx_graph.h"
#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

/// One line of a program's signature.
struct InputSpec {
  std::string kind;    ///< `USER_INPUT`, `PARAMETER`, `BUFFER`, …
  std::string target;  ///< full name of the parameter or buffer
  bool is_persistent = true;
};

struct OutputSpec {
  std::string kind;  ///< `USER_OUTPUT`, `BUFFER_MUTATION`, …
  std::string target;
};

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

using InputSpecs = std::unordered_map<std::string, InputSpec>;

InputSpecs input_specs(const py::object& signature) {
  InputSpecs specs;
  MemberNames kinds;
  for (const py::handle spec : py::list(signature.attr("input_specs"))) {
    InputSpec& row = specs[spec.attr("arg").attr("name").cast<std::string>()];
    row.kind = kinds.of(spec.attr("kind"));
    row.target = text_or_empty(spec.attr("target"));
    row.is_persistent = spec.attr("persistent").ptr() != Py_False;
  }
  return specs;
}

std::vector<OutputSpec> output_specs(const py::object& signature) {
  std::vector<OutputSpec> specs;
  MemberNames kinds;
  for (const py::handle spec : py::list(signature.attr("output_specs"))) {
    specs.push_back({kinds.of(spec.attr("kind")), text_or_empty(spec.attr("target"))});
  }
  return specs;
}

class ProgramReader {
 public:
  ProgramReader(const py::object& program, const FxImportOptions& options)
      : program_(program),
        options_(options),
        signature_(program.attr("graph_signature")),
        context_(options.dim_names),
        inputs_(input_specs(signature_)),
        state_(program.attr("state_dict")),
        constants_(program.attr("constants")) {}

  ir::Model read() {
    ir::Model model;
    context_.main = model.graph.get();
    reserve_names();
    FxGraphReader reader(context_, *model.graph, program_.attr("graph_module"));
    add_outputs(*model.graph, reader.read([this](const std::string& name, py::handle example) {
      return placeholder(name, example);
    }));
    if (context_.has_writes) context_.memory.mark(context_.types);
    return model;
  }

 private:
  /// Initializers give way to inputs and outputs that have their name.
  void reserve_names() {
    for (const auto* names : {&options_.input_names, &options_.output_names}) {
      if (!*names) continue;
      for (const std::string& name : **names) context_.taken.insert(name);
    }
    if (options_.input_names) return;
    for (const auto& [name, spec] : inputs_) {
      if (spec.kind == "USER_INPUT") context_.taken.insert(name);
    }
  }

  FxValue placeholder(const std::string& name, py::handle example) {
    const auto spec = inputs_.find(name);
    if (spec == inputs_.end()) throw ImportError(fmt::format("placeholder {} is not in the program's signature", name));
    if (spec->second.kind == "USER_INPUT") return user_input(name, example);
    FxValue value;
    value.value = &context_.initializer(spec->second.target, weight(name, spec->second));
    return value;
  }

  FxValue user_input(const std::string& placeholder, py::handle example) {
    const std::size_t index = user_inputs_++;
    const auto& names = options_.input_names;
    if (names && index >= names->size()) {
      throw InvalidArgument(
          fmt::format("input_names must have a name for each of the program's inputs, got {}", names->size()));
    }
    const std::string& name = names ? (*names)[index] : placeholder;
    FxValue value;
    value.literal = find_literal(example);
    if (value.literal) return value;
    const ir::Type type = context_.types.type(example);
    if (type.dtype == DType::kUndefined) {
      throw ImportError(fmt::format("input {} is a {}; only tensors, numbers, texts and None can be converted", name,
                                    Py_TYPE(example.ptr())->tp_name));
    }
    value.value = &context_.main->add_input(name, type);
    return value;
  }

  py::object weight(const std::string& name, const InputSpec& spec) {
    if (spec.kind == "TOKEN") {
      throw ImportError(
          fmt::format("input {} is a token of an operator with side effects, which ONNX does not have", name));
    }
    if (spec.kind == "CUSTOM_OBJ") {
      throw ImportError(fmt::format("'{}' is a custom object; only tensors can be converted", spec.target));
    }
    const bool is_constant = spec.kind == "CONSTANT_TENSOR" || !spec.is_persistent;
    const py::object& tensors = is_constant && constants_.contains(spec.target) ? constants_ : state_;
    if (!tensors.contains(spec.target)) {
      throw ImportError(fmt::format("the program has no tensor for {} '{}'", spec.kind, spec.target));
    }
    return tensors[spec.target.c_str()];
  }

  /// The user's outputs in order, then those that torch added for tensors that the program writes.
  void add_outputs(ir::Graph& graph, const std::vector<FxValue>& results) {
    const std::vector<OutputSpec> specs = output_specs(signature_);
    if (specs.size() != results.size()) {
      throw ImportError(
          fmt::format("the program returns {} values, its signature has {}", results.size(), specs.size()));
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].kind == "USER_OUTPUT" || specs[i].kind == "LOSS_OUTPUT") add_user_output(graph, results[i]);
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].kind.ends_with("_MUTATION")) graph.add_output(results[i].value, mutated_name(specs[i]));
    }
  }

  void add_user_output(ir::Graph& graph, const FxValue& value) {
    const std::size_t index = user_outputs_++;
    const auto& names = options_.output_names;
    if (names && index >= names->size()) {
      throw InvalidArgument(
          fmt::format("output_names must have a name for each of the program's outputs, got {}", names->size()));
    }
    const std::string name = names ? (*names)[index] : std::string();
    const std::string constant = name.empty() ? fmt::format("output_{}", index) : name + "_value";
    graph.add_output(output_value(context_, value, constant), name);
  }

  std::string mutated_name(const OutputSpec& spec) {
    std::size_t index = 0;
    for (const py::handle input : py::list(signature_.attr("input_specs"))) {
      if (input.attr("kind").attr("name").cast<std::string>() != "USER_INPUT") continue;
      const bool is_it = input.attr("arg").attr("name").cast<std::string>() == spec.target;
      if (is_it && options_.input_names) return options_.input_names->at(index) + "_mutated";
      ++index;
    }
    return spec.target + "_mutated";
  }

  const py::object& program_;
  const FxImportOptions& options_;
  py::object signature_;
  FxContext context_;
  InputSpecs inputs_;
  py::object state_;
  py::object constants_;
  std::size_t user_inputs_ = 0;
  std::size_t user_outputs_ = 0;
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
void name_apart(ir::Graph& graph) {
  std::unordered_set<std::string> taken;
  std::vector<ir::Value*> alike;
  for (const auto& input : graph.inputs()) taken.insert(input->name());
  for (ir::Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      ir::Value& value = node.output(i);
      if (!value.name().empty() && !taken.insert(value.name()).second) alike.push_back(&value);
    }
  }
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
  FxContext context(dim_names);
  auto graph = std::make_unique<ir::Graph>();
  context.main = graph.get();
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
