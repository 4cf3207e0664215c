#include "exportguard/evaluator/evaluator.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>
#include <set>
#include <unordered_set>

#include "evaluator/machine.h"
#include "exportguard/ir/types.h"

namespace exportguard::evaluator {
namespace {

c10::Device device_named(const std::string& name) {
  try {
    return c10::Device(name);
  } catch (const c10::Error&) {
    throw InvalidArgument(fmt::format("device must be one of torch's, such as 'cpu' or 'cuda:0', got '{}'", name));
  }
}

// Integers of less than a byte come as 8-bit ones where the caller has no other.
bool takes(DType declared, DType given) {
  if (declared == given || declared == DType::kUndefined) return true;
  const int bits = declared == DType::kString ? 8 : bit_width(declared);
  return bits < 8 && storage_of(declared) == storage_of(given);
}

[[noreturn]] void refuse(const ir::Value& input, const Datum& given) {
  throw InvalidArgument(
      fmt::format("input '{}' must be {}, got {}", input.name(), input.type().str(), describe(&given)));
}

bool fits(const ir::Shape& declared, at::IntArrayRef given) {
  if (declared.size() != given.size()) return false;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const auto size = declared[i].constant();
    if (size && *size != given[i]) return false;
  }
  return true;
}

void check_tensor(const ir::Value& input, Datum& datum) {
  const ir::Type& type = input.type();
  if (!takes(type.dtype, datum.dtype)) refuse(input, datum);
  if (type.shape && !fits(*type.shape, datum.tensor.sizes())) refuse(input, datum);
  if (type.dtype != DType::kUndefined) datum.dtype = type.dtype;
}

void check(const ir::Value& input, Datum& datum) {
  using Kind = ir::Type::Kind;
  const bool is_known = input.type().dtype != DType::kUndefined;
  if (datum.is_tensor() && input.type().kind != Kind::kSequence) return check_tensor(input, datum);
  const bool wants_tensor = is_known && input.type().kind == Kind::kTensor;
  const bool wants_sequence = is_known && input.type().kind == Kind::kSequence;
  if (wants_tensor || (wants_sequence && datum.items == nullptr)) refuse(input, datum);
}

const std::set<std::string, std::less<>>& random_operators() {
  static const std::set<std::string, std::less<>> names{
      "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"};
  return names;
}

const ir::Tensor* constant_behind(const ir::Value* value) {
  if (value->initializer() != nullptr) return value->initializer();
  const ir::Node* producer = value->producer();
  if (producer == nullptr || !producer->is("", "Constant")) return nullptr;
  const ir::Attribute* found = producer->find_attribute("value");
  return found != nullptr ? std::get_if<ir::Tensor>(found) : nullptr;
}

std::size_t declared_bytes(const ir::Value& value) {
  if (!value.type().shape || value.dtype() == DType::kUndefined) return 0;
  std::vector<std::int64_t> sizes;
  for (const ir::Dim& dim : *value.type().shape) sizes.push_back(dim.constant().value_or(0));
  return bit_width(value.dtype()) == 0 ? 0 : ir::Tensor::nbytes_of(value.dtype(), sizes);
}

std::size_t declared_bytes(const ir::Node& node) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < node.output_count(); ++i) bytes += declared_bytes(node.output(i));
  return bytes;
}

std::optional<std::vector<ir::Tensor>> tensors_of(const Data& results, const StringPool& strings, std::size_t limit) {
  std::vector<ir::Tensor> tensors;
  std::size_t bytes = 0;
  for (const Datum& datum : results) {
    if (!datum.is_tensor()) return std::nullopt;
    tensors.push_back(to_value(datum, strings).tensor());
    bytes += tensors.back().nbytes();
  }
  return bytes > limit ? std::nullopt : std::optional(std::move(tensors));
}

// What torch needs neither for values nor for errors: no graph of gradients, no marks of views.
struct PlainTensors {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
};

using Storages = std::unordered_set<const void*>;

void note_storage(const Datum& datum, Storages& storages) {
  if (datum.is_tensor()) storages.insert(datum.tensor.storage().unsafeGetStorageImpl());
}

// An output that is a weight or an input, or a view of one, is copied: who changes it changes nothing else.
Datum of_its_own(const Datum& datum, const Storages& borrowed) {
  const bool is_borrowed = datum.is_tensor() && borrowed.contains(datum.tensor.storage().unsafeGetStorageImpl());
  return is_borrowed ? Datum::of(datum.tensor.clone(), datum.dtype) : datum;
}

// A view of few elements that shows them many times takes memory when it is handed out.
Value handed_out(const Datum& datum, const Storages& borrowed, const StringPool& strings) {
  try {
    return to_value(of_its_own(datum, borrowed), strings);
  } catch (const c10::Error&) {
    throw EvaluationError(fmt::format("there is not enough memory for the output {}", describe(&datum)));
  } catch (const std::bad_alloc&) {
    throw EvaluationError(fmt::format("there is not enough memory for the output {}", describe(&datum)));
  }
}

}  // namespace

struct Program::Implementation {
  Implementation(const ir::Model& model_to_run, Options given)
      : model(model_to_run), options(std::move(given)), device(device_named(options.device)), routines(model, device) {
    for (const auto& [slot, constant] : routines.main().constants) note_storage(constant, constants);
  }

  const ir::Model& model;
  Options options;
  c10::Device device;
  Routines routines;
  Storages constants;
};

Program::Program(const ir::Model& model, Options options) {
  const PlainTensors plain;
  implementation_ = std::make_unique<Implementation>(model, std::move(options));
}

Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

std::vector<Value> Program::run(std::span<const Value> inputs) const { return Run(*this, inputs).outputs(); }

// ------------------------------------------------------------------------------------------------ runs

struct Run::State {
  explicit State(const Program::Implementation& of)
      : program(of),
        strings(&of.routines.strings()),
        borrowed(of.constants),
        setting{strings, of.device, of.options.observer, of.options.substitute},
        machine(of.routines.main(), setting) {}

  const Program::Implementation& program;
  StringPool strings;
  Storages borrowed;
  Machine::Setting setting;
  Machine machine;
};

Run::Run(const Program& program, std::span<const Value> inputs)
    : state_(std::make_unique<State>(*program.implementation_)) {
  const PlainTensors plain;
  const auto& declared = state_->program.model.graph->inputs();
  if (inputs.size() != declared.size()) {
    throw InvalidArgument(fmt::format("the graph has {} inputs, got {}", declared.size(), inputs.size()));
  }
  Data data;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    data.push_back(to_datum(inputs[i], state_->strings, state_->program.device));
    check(*declared[i], data.back());
    note_storage(data.back(), state_->borrowed);
  }
  state_->machine.begin(std::move(data));
}

Run::~Run() = default;

bool Run::advance() {
  const PlainTensors plain;
  return state_->machine.advance();
}

std::vector<Value> Run::outputs() {
  const PlainTensors plain;
  while (state_->machine.advance()) {
  }
  std::vector<Value> outputs;
  for (const Datum& result : state_->machine.end()) {
    outputs.push_back(handed_out(result, state_->borrowed, state_->strings));
  }
  return outputs;
}

// ------------------------------------------------------------------------------------------------ single runs

std::vector<Value> run(const ir::Model& model, std::span<const Value> inputs, const Options& options) {
  return Program(model, options).run(inputs);
}

std::optional<std::vector<ir::Tensor>> fold(const ir::Node& node, std::int64_t opset, std::size_t limit) {
  if (node.is_torch() || random_operators().contains(node.op()) || !node.subgraphs().empty()) return std::nullopt;
  const Operator run = OperatorTable::builtin().find(node.qualified_name());
  if (run == nullptr) return std::nullopt;

  const PlainTensors plain;
  const c10::Device device(c10::kCPU);
  StringPool strings;
  try {
    if (declared_bytes(node) > limit) return std::nullopt;
    Data data(node.input_count());
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      if (node.find_input(i) == nullptr) continue;
      const ir::Tensor* constant = constant_behind(node.find_input(i));
      if (constant == nullptr) return std::nullopt;
      data[i] = to_datum(*constant, strings, device);
    }

    std::vector<const Datum*> operands;
    for (std::size_t i = 0; i < data.size(); ++i)
      operands.push_back(node.find_input(i) != nullptr ? &data[i] : nullptr);
    const Call::Surroundings around{opset, strings, device, {}};
    Call call(node, operands, around);
    run(call);

    Data results = call.take_results();
    if (results.size() < node.output_count()) return std::nullopt;
    results.resize(node.output_count());
    return tensors_of(results, strings, limit);
  } catch (const std::exception&) {  // what cannot be computed stays in the graph, where running it gives the error
    return std::nullopt;
  }
}

}  // namespace exportguard::evaluator
