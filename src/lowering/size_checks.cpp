#include "exportguard/lowering/size_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "exportguard/ir/builder.h"
#include "exportguard/ir/inference.h"

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

/// One of several that is an alternative stands in brackets.
std::vector<std::string> parted(std::vector<std::string> conditions) {
  for (std::string& one : conditions) {
    if (conditions.size() > 1 && one.find(" or ") != std::string::npos) one = fmt::format("({})", one);
  }
  return conditions;
}

/// Writes in front of all nodes, or behind them for a value that one of them makes.
class Checks {
 public:
  Checks(ir::Model& model, ir::Value& given)
      : model_(model),
        given_(given),
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
    written_.push_back(&check);
  }

  /// Those that a run asks for.
  const std::vector<const SizeCheck*>& written() const { return written_; }

  std::size_t write() {
    if (holds_ == nullptr) return 0;
    // No helper of the builder: what is known of sizes would say that the condition holds.
    ir::Value* sizes = builder_.op("Where", {holds_, builder_.op("Shape", {&given_}), builder_.ints({kNoSize})});
    ir::Value* whole = builder_.op("Reshape", {&given_, sizes}, {{"allowzero", std::int64_t{1}}});
    whole->set_type(of_other_sizes(given_.type()));
    whole->producer()->set_name(fmt::format("only sizes with {}", fmt::join(parted(conditions_), " and ")));
    for (const ir::Use* reader : readers_) reader->user().set_input(reader->index(), whole);
    return conditions_.size();
  }

 private:
  /// Sizes that are not told to be those of the input: a Reshape to the sizes that there are would be left out.
  ir::Type of_other_sizes(ir::Type type) {
    for (ir::Dim& dim : *type.shape) {
      if (!dim.is_constant()) dim = ir::fresh_symbol(model_);
    }
    return type;
  }

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

  ir::Model& model_;
  ir::Value& given_;
  std::vector<ir::Use*> readers_;
  ir::Graph& graph_;
  ir::Builder builder_;
  std::size_t noted_ = 0;
  ir::Value* holds_ = nullptr;  // bool[1]
  std::vector<std::string> conditions_;
  std::vector<const SizeCheck*> written_;
};

const ir::Dim& dim_at(ir::Graph& graph, const std::string& input, std::int64_t axis) {
  return input_of(graph, input).type().shape->at(static_cast<std::size_t>(axis));
}

/// Whether the type has something else than the name for a size that may change.
bool is_otherwise(ir::Graph& graph, const AxisName& axis) {
  const ir::Dim& dim = dim_at(graph, axis.input, axis.axis);
  return !dim.is_constant() && dim.symbol_name() != axis.name;
}

/// The symbols of several axes that a condition is about, if it holds where these are not equal as well.
std::set<std::string> symbols_of_unequal(ir::Graph& graph, const std::vector<const SizeCheck*>& checks) {
  std::set<std::string> found;
  for (const SizeCheck* check : checks) {
    std::set<std::string> met;
    for (const SizeCheck::Size& size : check->sizes) {
      const auto symbol = dim_at(graph, size.input, size.axis).symbol_name();
      if (symbol && !met.insert(*symbol).second && check->any_of.size() > 1) found.insert(*symbol);
    }
  }
  return found;
}

/// Every value that a node makes has a size of its own in the place of one of the symbols.
void forget(ir::Model& model, ir::Graph& graph, const std::set<std::string>& symbols) {
  for (ir::Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      ir::Type type = node.output(i).type();
      if (!type.shape) continue;
      for (ir::Dim& dim : *type.shape) {
        const auto names = dim.symbols();
        if (std::ranges::any_of(names, [&](const auto& name) { return symbols.contains(name); })) {
          dim = ir::fresh_symbol(model);
        }
      }
      node.output(i).set_type(std::move(type));
    }
    for (ir::Graph* body : node.subgraphs()) forget(model, *body, symbols);
  }
}

/// The axes that conditions are about have their own names, and so have all others that go by one of those names.
void name_apart(ir::Graph& graph, const std::vector<const SizeCheck*>& checks, const std::vector<AxisName>& names) {
  std::set<std::pair<std::string, std::int64_t>> checked;
  for (const SizeCheck* check : checks) {
    for (const SizeCheck::Size& size : check->sizes) checked.emplace(size.input, size.axis);
  }
  std::set<std::string> wanted;
  for (const AxisName& one : names) {
    if (checked.contains({one.input, one.axis}) && is_otherwise(graph, one)) wanted.insert(one.name);
  }
  for (const auto& input : graph.inputs()) {  // a name that stands for something else
    if (!input->type().shape) continue;
    for (const ir::Dim& dim : *input->type().shape) {
      for (const std::string& symbol : dim.symbols()) wanted.erase(symbol);
    }
  }
  for (const AxisName& one : names) {
    if (!wanted.contains(one.name) || !is_otherwise(graph, one)) continue;
    ir::Value& input = input_of(graph, one.input);
    ir::Type type = input.type();
    type.shape->at(static_cast<std::size_t>(one.axis)) = SymExpr::symbol(one.name);
    input.set_type(std::move(type));
  }
}

}  // namespace

std::size_t refuse_other_sizes(ir::Model& model, const std::vector<SizeCheck>& checks,
                               const std::vector<AxisName>& names) {
  ir::Value* given = checks.empty() ? nullptr : cheapest_value(*model.graph);
  if (given == nullptr) return 0;
  Checks written(model, *given);
  for (const SizeCheck& check : checks) written.add(check);
  const std::size_t count = written.write();
  const std::set<std::string> unequal = symbols_of_unequal(*model.graph, written.written());
  if (!unequal.empty()) forget(model, *model.graph, unequal);
  name_apart(*model.graph, written.written(), names);
  return count;
}

}  // namespace exportguard::lowering
