#include "exportguard/lowering/size_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "exportguard/ir/builder.h"

namespace exportguard::lowering {
namespace {

constexpr std::int64_t kNoSize = -2;  // which a Reshape refuses

ir::Value& input_of(ir::Graph& graph, const std::string& name) {
  for (const auto& input : graph.inputs()) {
    if (input->name() == name) return *input;
  }
  throw GraphError(fmt::format("the graph has no input {}, of which a size is to be checked", name));
}

/// How many elements there are where 8 stand for each size that is not known; of as many, fewer axes are cheaper.
auto cost_of(const ir::Value& input) {
  const ir::Shape& shape = *input.type().shape;
  std::int64_t elements = 1;
  for (const ir::Dim& dim : shape) elements *= std::max<std::int64_t>(dim.constant().value_or(8), 1);
  return std::pair(elements, shape.size());
}

/// A single number has no sizes to be others.
bool may_be_reshaped(const ir::Value& value) {
  return value.type().kind == ir::Type::Kind::kTensor && value.type().rank().value_or(0) > 0;
}

/// The input that is cheapest to hand through; an output if nothing reads any, and null without one.
ir::Value* cheapest_value(const ir::Graph& graph) {
  ir::Value* found = nullptr;
  for (const auto& input : graph.inputs()) {
    if (input->is_unused() || !may_be_reshaped(*input)) continue;
    if (found == nullptr || cost_of(*input) < cost_of(*found)) found = input.get();
  }
  for (ir::Value* output : found == nullptr ? graph.outputs() : std::vector<ir::Value*>()) {
    if (output != nullptr && may_be_reshaped(*output)) return output;
  }
  return found;
}

/// Writes in front of all nodes, or behind them for a value that one of them makes.
class Checks {
 public:
  Checks(ir::Model& model, ir::Value& given)
      : given_(given),
        readers_(given.uses()),
        graph_(*model.graph),
        builder_(model, {&graph_, given.is_input() ? graph_.first() : nullptr, nullptr}) {}

  void add(const SizeCheck& check) {
    std::map<std::string, SymExpr> symbols;
    for (const SizeCheck::Size& size : check.sizes) symbols[size.symbol] = noted(size);
    ir::Value* holds = nullptr;
    for (const SizeCheck::Relation& relation : check.any_of) {
      ir::Value* one = find(relation, symbols);
      if (one == nullptr) return;
      holds = joined("Or", holds, one);
    }
    if (holds == nullptr) return;
    holds_ = joined("And", holds_, holds);
    conditions_.push_back(check.condition);
  }

  std::size_t write() {
    if (holds_ == nullptr) return 0;
    // No helper of the builder: what is known of sizes would say that the condition holds.
    ir::Value* sizes = builder_.op("Where", {holds_, builder_.op("Shape", {&given_}), builder_.ints({kNoSize})});
    ir::Value* whole = builder_.op("Reshape", {&given_, sizes}, {{"allowzero", std::int64_t{1}}});
    whole->set_type(given_.type());
    whole->producer()->set_name(fmt::format("only sizes with {}", fmt::join(conditions_, " and ")));
    for (const ir::Use* reader : readers_) reader->user().set_input(reader->index(), whole);
    return conditions_.size();
  }

 private:
  /// Null if a size in it is none of the inputs', or has no counterpart in ONNX.
  ir::Value* find(const SizeCheck::Relation& relation, const std::map<std::string, SymExpr>& symbols) {
    ir::Value* first = builder_.find_dim_value(relation.first.substitute(symbols));
    ir::Value* second = builder_.find_dim_value(relation.second.substitute(symbols));
    if (first == nullptr || second == nullptr) return nullptr;
    ir::Value* made = builder_.op(relation.op, {first, second});
    return relation.holds ? made : builder_.op("Not", {made});
  }

  ir::Value* joined(std::string_view op, ir::Value* known, ir::Value* further) {
    return known == nullptr ? further : builder_.op(op, {known, further});
  }

  /// A symbol that only this axis has: of axes that are equal wherever the program holds, the type has one symbol.
  SymExpr noted(const SizeCheck::Size& size) {
    ir::Value& input = input_of(graph_, size.input);
    ir::Type type = input.type();
    const SymExpr symbol = SymExpr::symbol(fmt::format("checked.{}", noted_++));  // no name of a user has a dot
    type.shape->at(static_cast<std::size_t>(size.axis)) = symbol;
    builder_.note_sizes(input, type);
    return symbol;
  }

  ir::Value& given_;
  std::vector<ir::Use*> readers_;
  ir::Graph& graph_;
  ir::Builder builder_;
  std::size_t noted_ = 0;
  ir::Value* holds_ = nullptr;  // bool[1]
  std::vector<std::string> conditions_;
};

}  // namespace

std::size_t refuse_other_sizes(ir::Model& model, const std::vector<SizeCheck>& checks) {
  ir::Value* given = checks.empty() ? nullptr : cheapest_value(*model.graph);
  if (given == nullptr) return 0;
  Checks written(model, *given);
  for (const SizeCheck& check : checks) written.add(check);
  return written.write();
}

}  // namespace exportguard::lowering
