#include "python/fx_graph.h"

#include <exportguard/common/errors.h>
#include <exportguard/common/torch_dtypes.h>
#include <exportguard/ir/places.h>
#include <fmt/format.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

using ir::Argument;

std::string type_name(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

/// An output for each leaf of an example value; `assign` gives the leaves the outputs afterwards, in the same order.
FxValue add_leaves(FxTypes& types, py::handle example, std::vector<ir::Type>& outputs) {
  FxValue value;
  if (is_sequence(example)) {
    value.is_list = true;
    for (Py_ssize_t i = 0; i < sequence_size(example); ++i) {
      value.items.push_back(add_leaves(types, sequence_item(example, i), outputs));
    }
    return value;
  }
  outputs.push_back(types.type(example));
  return value;
}

void assign(FxValue& value, ir::Node& node, std::size_t& next) {
  if (!value.is_list) {
    value.value = &node.output(next++);
    return;
  }
  for (FxValue& item : value.items) assign(item, node, next);
}

void flatten(const FxValue& value, std::vector<FxValue>& leaves) {
  if (!value.is_list) return leaves.push_back(value);
  for (const FxValue& item : value.items) flatten(item, leaves);
}

std::int64_t integer(py::handle object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow != 0) {
    throw ImportError(fmt::format("the number {} does not fit into 64 bits", py::str(object).cast<std::string>()));
  }
  return value;
}

/// `lin.weight` → the object at the end of the attributes.
py::object resolve(py::object owner, const std::string& path) {
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t dot = std::min(path.find('.', at), path.size());
    owner = owner.attr(path.substr(at, dot - at).c_str());
    at = dot + 1;
  }
  return owner;
}

}  // namespace

std::optional<Argument> find_literal(py::handle object) {
  PyObject* p = object.ptr();
  if (p == nullptr || p == Py_None) return Argument{};
  if (PyBool_Check(p)) return Argument{p == Py_True};
  if (PyLong_Check(p)) return Argument{integer(object)};
  if (PyFloat_Check(p)) return Argument{PyFloat_AsDouble(p)};
  if (PyUnicode_Check(p)) return Argument{std::string(text_of(object))};
  if (PyComplex_Check(p)) return Argument{std::complex<double>(PyComplex_RealAsDouble(p), PyComplex_ImagAsDouble(p))};
  if (THPDtype_Check(p)) return Argument{from_scalar_type(reinterpret_cast<THPDtype*>(p)->scalar_type)};
  if (THPDevice_Check(p)) return Argument{Argument::Symbol{reinterpret_cast<THPDevice*>(p)->device.str()}};
  if (THPLayout_Check(p) || THPMemoryFormat_Check(p)) {
    const std::string text = py::str(object).cast<std::string>();
    return Argument{Argument::Symbol{text.substr(text.find('.') + 1)}};
  }

  const FxClasses& classes = FxClasses::get();
  if (py::isinstance(object, classes.op_overload) || py::isinstance(object, classes.higher_order_operator)) {
    return Argument{py::str(object).cast<std::string>()};
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------------------ initializers

namespace {

void require_plain_tensor(const std::string& name, py::handle object) {
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  const std::string type = type_name(object);
  const bool is_fake = type == "FakeTensor" || py::hasattr(object, "fake_mode");
  if (is_fake || tensor.is_meta()) {
    throw ImportError(
        fmt::format("the model has fake weights: '{}' is a {} without elements; load the weights into the "
                    "model before exporting it",
                    name, is_fake ? "fake tensor" : "tensor on the meta device"));
  }
  if (tensor.key_set().has(c10::DispatchKey::Python)) {
    throw ImportError(
        fmt::format("weight '{}' is a {}, a tensor class with its own operators; convert it to a plain "
                    "tensor before exporting",
                    name, type));
  }
}

}  // namespace

ir::Value& FxContext::initializer(const std::string& name, py::handle object) {
  require_plain_tensor(name, object);
  return weights.shared(name, ir::Tensor(THPVariable_Unpack(object.ptr())));
}

const FxPath& FxContext::path(const py::object& object) {
  const auto [row, is_new] = paths.try_emplace(object.ptr());
  if (!is_new) return row->second;
  const FxNames& names = FxNames::get();
  for (const py::handle item : py::list(object.attr("graph").attr("nodes"))) {
    const auto node = py::reinterpret_borrow<py::object>(item);
    if (text_of(attribute(node, names.op)) == "placeholder") {
      row->second.placeholders.push_back(node);
      continue;
    }
    const py::object meta = attribute(node, names.meta);
    row->second.by_number[integer(meta["exportguard_number"])] = node.ptr();
    row->second.nodes.push_back(node);
  }
  return row->second;
}

// ------------------------------------------------------------------------------------------------ nodes

FxGraphReader::FxGraphReader(FxContext& context, ir::Graph& graph, py::object graph_module)
    : context_(context), graph_(graph), graph_module_(std::move(graph_module)) {}

std::vector<FxValue> FxGraphReader::read(const Placeholder& placeholder) {
  const FxNames& names = FxNames::get();
  std::vector<FxValue> results;
  // A list: torch's iterator over nodes begins again when it is asked once more after its end.
  const py::list nodes(graph_module_.attr("graph").attr("nodes"));
  values_.reserve(nodes.size());

  for (const py::handle node : nodes) {
    const py::object op = attribute(node, names.op);
    const std::string_view kind = text_of(op);
    std::string name(text_of(attribute(node, names.name)));
    if (kind == "call_function") {
      call_function(node, std::move(name));
    } else if (kind == "placeholder") {
      values_[node.ptr()] = placeholder(name, example_of(node));
    } else if (kind == "get_attr") {
      get_attribute(node, name);
    } else if (kind == "output") {
      const py::object args = attribute(node, names.args);
      add_returned(sequence_item(args, 0), results);
    } else {
      throw ImportError(
          fmt::format("node {} is a {}, which torch.export does not make; pass what torch.export.export "
                      "returned",
                      name, kind));
    }
  }
  return results;
}

void FxGraphReader::get_attribute(py::handle node, const std::string& name) {
  const std::string path(text_of(attribute(node, FxNames::get().target)));
  const py::object object = resolve(graph_module_, path);
  FxValue& value = values_[node.ptr()];
  if (py::isinstance(object, FxClasses::get().graph_module)) {
    value.module = object;
  } else if (THPVariable_Check(object.ptr())) {
    value.value = &context_.initializer(graph_.name() == "main" ? path : graph_.name() + "." + path, object);
  } else {
    throw ImportError(fmt::format("node {} reads the attribute '{}', a {}; only tensors and graphs can be converted",
                                  name, path, type_name(object)));
  }
}

const FxValue& FxGraphReader::value_of(py::handle node) const { return values_.at(node.ptr()); }

/// The nodes of the block's path, with the marker's operands in the place of the placeholders.
void FxGraphReader::read_block(py::handle marker) {
  const FxNames& names = FxNames::get();
  const py::object meta = attribute(marker, names.meta);
  const FxPath& path = context_.path(py::reinterpret_borrow<py::object>(find_item(meta, names.block_path)));
  const std::string module = context_.sources.module_path(meta);
  const py::object args = attribute(marker, names.args);

  std::size_t next = 0;
  for (Py_ssize_t list = 0; list < sequence_size(args); ++list) {
    const py::handle operands = sequence_item(args, list);
    for (Py_ssize_t i = 0; i < sequence_size(operands); ++i) {
      values_[path.placeholders.at(next++).ptr()] = value_of(sequence_item(operands, i));
    }
  }

  block_ = &module;
  for (const py::object& node : path.nodes) {
    call_function(node, std::string(text_of(attribute(node, names.name))));
  }
  block_ = nullptr;

  for (const py::handle user : py::list(attribute(marker, names.users))) {
    const py::object index = py::reinterpret_borrow<py::object>(sequence_item(attribute(user, names.args), 1));
    values_[user.ptr()] = values_.at(path.by_number.at(integer(index)));
  }
}

/// An item of several results is an output of the node that gives them.
bool FxGraphReader::fold_getitem(py::handle node, const std::string& name) {
  if (block_ == nullptr && values_.contains(node.ptr())) return true;  // a value of a block
  const py::object args = attribute(node, FxNames::get().args);
  if (sequence_size(args) != 2 || !PyLong_Check(sequence_item(args, 1).ptr())) return false;
  const auto list = values_.find(sequence_item(args, 0).ptr());
  if (list == values_.end() || !list->second.is_list) return false;
  const std::int64_t index = integer(sequence_item(args, 1));
  const auto size = static_cast<std::int64_t>(list->second.items.size());
  FxValue item = list->second.items.at(static_cast<std::size_t>(index < 0 ? index + size : index));
  if (item.value != nullptr) item.value->set_name(name);
  values_[node.ptr()] = std::move(item);
  return true;
}

void FxGraphReader::call_function(py::handle node, std::string name) {
  const FxNames& names = FxNames::get();
  const py::object target = attribute(node, names.target);
  Call call{context_.operators.of(target), std::move(name), {}, {}};
  if (call.op.kind == FxOperator::Kind::kGetItem && fold_getitem(node, call.name)) return;
  if (call.op.kind == FxOperator::Kind::kMarker) return read_block(node);
  const py::object meta = attribute(node, names.meta);
  call.spec.source = context_.sources.source(meta, call.op.target, block_);
  try {
    place_arguments(node, call);
    append(node, call);
  } catch (const Error& error) {
    throw ImportError(fmt::format("cannot import {}: {}", ir::placed(call.op.target, call.spec.source), error.what()));
  }
}

void FxGraphReader::append(py::handle node, Call& call) {
  call.spec.domain = call.op.domain;
  call.spec.op = call.op.op;
  call.spec.is_torch = true;
  call.spec.outputs.clear();
  if (!call.keywords.empty()) call.spec.attributes.emplace_back("keywords", std::move(call.keywords));
  for (auto& [name, body] : call.bodies) call.spec.attributes.emplace_back(name, std::move(body));
  const py::handle example = example_of(node);
  FxValue value;
  if (example && !example.is_none()) value = add_leaves(context_.types, example, call.spec.outputs);
  const bool has_outputs = !call.spec.outputs.empty();
  ir::Node& made = graph_.append(std::move(call.spec));
  std::size_t next = 0;
  if (has_outputs) assign(value, made, next);
  if (value.value != nullptr) value.value->set_name(std::move(call.name));
  values_[node.ptr()] = std::move(value);
  context_.has_writes = context_.has_writes || call.op.writes;
  context_.memory.note(node, call.op, made);
}

// ------------------------------------------------------------------------------------------------ arguments

void FxGraphReader::place_arguments(py::handle node, Call& call) {
  const FxNames& names = FxNames::get();
  const py::object args = attribute(node, names.args);
  for (Py_ssize_t i = 0; i < sequence_size(args); ++i) {
    call.spec.arguments.push_back(argument(sequence_item(args, i), call, static_cast<std::size_t>(i)));
  }
  const py::object keywords = attribute(node, names.kwargs);
  if (PyDict_Size(keywords.ptr()) > 0) place_keywords(keywords, call);
}

void FxGraphReader::place_keywords(py::handle keywords, Call& call) {
  std::vector<Argument>& arguments = call.spec.arguments;
  std::map<std::size_t, Argument> placed;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t cursor = 0;
  while (PyDict_Next(keywords.ptr(), &cursor, &key, &value) != 0) {
    const auto position = call.op.position_of(text_of(key));
    if (!position && call.op.schema != nullptr) {
      throw ImportError(fmt::format("its schema has no argument '{}'", text_of(key)));
    }
    if (!position && call.op.kind == FxOperator::Kind::kHigherOrder) call.keywords.emplace_back(text_of(key));
    const std::size_t behind = std::max(arguments.size(), placed.empty() ? 0 : placed.rbegin()->first + 1);
    const std::size_t at = position.value_or(behind);
    placed[at] = argument(value, call, at);
  }

  for (auto& [at, item] : placed) {
    while (arguments.size() < at) {
      auto missing = call.op.default_of(arguments.size());
      if (!missing) throw ImportError(fmt::format("argument {} is missing and has no default", arguments.size()));
      arguments.push_back(std::move(*missing));
    }
    arguments.push_back(std::move(item));
  }
}

Argument FxGraphReader::argument(py::handle object, Call& call, std::size_t position) {
  PyObject* p = object.ptr();
  if (PyObject_TypeCheck(p, reinterpret_cast<PyTypeObject*>(FxClasses::get().node.ptr())) != 0) {
    return node_argument(value_of(object), call, position);
  }
  if (is_sequence(object)) return list_argument(object, call, position);
  if (auto literal = find_literal(object)) return std::move(*literal);
  if (PyDict_Check(p)) return list_argument(py::list(object.attr("items")()), call, position);
  throw ImportError(fmt::format("argument {} is a {}, which cannot be converted", position, type_name(object)));
}

Argument FxGraphReader::list_argument(py::handle list, Call& call, std::size_t position) {
  Argument::List items;
  for (Py_ssize_t i = 0; i < sequence_size(list); ++i) {
    items.push_back(argument(sequence_item(list, i), call, position));
  }
  return {std::move(items)};
}

Argument FxGraphReader::node_argument(const FxValue& value, Call& call, std::size_t position) {
  if (value.value != nullptr) return operand(*value.value, call);
  if (value.literal) return *value.literal;
  if (value.module) return body_argument(value.module, call, position);
  if (!value.is_list) throw ImportError(fmt::format("argument {} is the result of a node that has none", position));
  Argument::List items;
  for (const FxValue& item : value.items) items.push_back(node_argument(item, call, position));
  return {std::move(items)};
}

Argument FxGraphReader::operand(ir::Value& value, Call& call) {
  call.spec.inputs.push_back(&value);
  return {Argument::Operand{call.spec.inputs.size() - 1}};
}

Argument FxGraphReader::body_argument(py::handle module, Call& call, std::size_t position) {
  const bool is_named = position < call.op.parameters.size();
  const std::string name = is_named ? call.op.parameters[position] : "body";
  call.bodies.emplace_back(name,
                           read_body(context_, py::reinterpret_borrow<py::object>(module), call.name + "_" + name));
  return {};
}

void FxGraphReader::add_returned(py::handle returned, std::vector<FxValue>& results) const {
  if (is_sequence(returned)) {
    for (Py_ssize_t i = 0; i < sequence_size(returned); ++i) add_returned(sequence_item(returned, i), results);
    return;
  }
  if (py::isinstance(returned, FxClasses::get().node)) return flatten(value_of(returned), results);
  FxValue value;
  value.literal = find_literal(returned);
  if (!value.literal) throw ImportError(fmt::format("the graph returns a {}", type_name(returned)));
  results.push_back(std::move(value));
}

// ------------------------------------------------------------------------------------------------ whole graphs

std::unique_ptr<ir::Graph> read_body(FxContext& context, const py::object& graph_module, const std::string& name) {
  auto graph = std::make_unique<ir::Graph>(name);
  FxGraphReader reader(context, *graph, graph_module);
  const auto results = reader.read([&](const std::string& input, py::handle example) {
    FxValue value;
    value.literal = find_literal(example);
    if (!value.literal) value.value = &graph->add_input(input, context.types.type(example));
    return value;
  });
  for (const FxValue& value : results) graph->add_output(output_value(context, value, name + "_constant"));
  return graph;
}

ir::Value* output_value(FxContext& context, const FxValue& value, const std::string& name) {
  if (value.value != nullptr || !value.literal || value.literal->is_none()) return value.value;
  std::optional<ir::Tensor> tensor;
  if (const auto* flag = value.literal->get_if<bool>()) tensor = ir::Tensor::scalar(std::int64_t{*flag}, DType::kBool);
  if (const auto* number = value.literal->get_if<std::int64_t>()) tensor = ir::Tensor::scalar(*number, DType::kInt64);
  if (const auto* number = value.literal->get_if<double>()) tensor = ir::Tensor::scalar(*number, DType::kFloat32);
  if (!tensor) return nullptr;
  return &context.weights.add(name, std::move(*tensor));
}

}  // namespace exportguard::python
