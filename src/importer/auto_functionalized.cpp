#include "importer/auto_functionalized.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <map>

#include "exportguard/common/errors.h"
#include "importer/torch_call.h"
#include "operators/facts.h"
#include "operators/schemas.h"

namespace exportguard::importer {
namespace {

using ir::Argument;
using ir::Node;
using ir::Value;

bool is_wrapper(const Node& node) {
  return node.is("higher_order", "auto_functionalized") || node.is("higher_order", "auto_functionalized_v2");
}

/// One wrapper: the operator's name is its first argument, the others go by keywords.
class Wrapper {
 public:
  explicit Wrapper(Node& node) : node_(node), call_(node), schema_(find_schema()) {
    const auto* names = std::get_if<std::vector<std::string>>(&node.attribute("keywords"));
    for (std::size_t i = 0; i < names->size(); ++i) positions_.emplace((*names)[i], i + 1);
  }

  void unwrap() {
    copy_bases();
    std::vector<CallArgument> arguments;
    for (const c10::Argument& argument : schema_.arguments()) {
      const bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
      arguments.push_back(is_written ? written(argument.name()) : CallArgument::of(node_, position(argument.name())));
    }
    const std::size_t bases = bases_.size();
    const std::size_t results = schema_.returns().empty() ? 0 : node_.output_count() - bases;
    std::vector<ir::Type> types;
    for (std::size_t i = 0; i < results; ++i) types.push_back(node_.output(i).type());
    const Node& made = call_.node(domain_, op_, arguments, std::move(types));
    for (std::size_t i = 0; i < results; ++i) node_.output(i).replace_all_uses_with(made.output(i));
    for (std::size_t i = 0; i < bases; ++i) {
      if (bases_[i]) node_.output(node_.output_count() - bases + i).replace_all_uses_with(*bases_[i]);
    }
    node_.graph().erase(node_);
  }

 private:
  const c10::FunctionSchema& find_schema() {
    const auto* target = node_.arguments().at(0).get_if<std::string>();
    const std::string name = target ? *target : std::string();
    const std::size_t dot = name.find('.');
    domain_ = name.substr(0, dot);
    op_ = dot == std::string::npos ? std::string() : name.substr(dot + 1);
    const c10::FunctionSchema* schema = operators::find_schema(domain_, op_);
    if (!schema) throw ImportError(fmt::format("{} wraps {}, which torch does not know", place_of(node_), name));
    return *schema;
  }

  bool has(const std::string& keyword) const { return positions_.contains(keyword); }

  std::size_t position(const std::string& keyword) const {
    const auto found = positions_.find(keyword);
    if (found == positions_.end()) throw ImportError(fmt::format("{} has no argument '{}'", place_of(node_), keyword));
    return found->second;
  }

  CallArgument at(const std::string& keyword) const { return CallArgument::of(node_, position(keyword)); }

  Value* copied(Value* value) const { return value ? &call_.aten("clone.default", {*value}, value->type()) : nullptr; }

  /// Version 2 lists the tensors that own the memory; version 1 has the arguments themselves.
  void copy_bases() {
    if (has("_all_bases")) {
      for (Value* base : operands(node_, position("_all_bases"))) bases_.push_back(copied(base));
      return;
    }
    for (const c10::Argument& argument : schema_.arguments()) {
      if (!argument.alias_info() || !argument.alias_info()->isWrite()) continue;
      first_base_[argument.name()] = bases_.size();
      bases_.push_back(copied(find_operand(node_, position(argument.name()))));
    }
  }

  CallArgument written(const std::string& name) {
    if (const auto base = first_base_.find(name); base != first_base_.end()) return argument_of(bases_[base->second]);
    const std::string length = "_" + name + "_length";
    if (!has(length)) return argument_of(view("_" + name));
    std::vector<Value*> items;
    for (std::int64_t i = 0; i < find_integer(node_, position(length)).value_or(0); ++i) {
      items.push_back(view(fmt::format("_{}_{}", name, i)));
    }
    return CallArgument::list(std::move(items));
  }

  static CallArgument argument_of(Value* value) { return value ? CallArgument(*value) : CallArgument(Argument{}); }

  /// What the operator is given of a base: all of it, a slice, or strides of its memory. Null for None.
  Value* view(const std::string& prefix) const {
    const auto index = find_integer(node_, position(prefix + "_base_index"));
    if (!index) return nullptr;
    Value& base = *bases_.at(static_cast<std::size_t>(*index));
    ir::Type type = ir::Type::tensor(base.dtype(), std::nullopt);
    if (has(prefix + "_slice_dim")) {
      return &call_.aten("slice.Tensor",
                         {base, at(prefix + "_slice_dim"), at(prefix + "_slice_start"), at(prefix + "_slice_end")},
                         sliced_type(base, prefix));
    }
    if (has(prefix + "_storage_offset")) {
      return &call_.aten("as_strided.default",
                         {base, at(prefix + "_size"), at(prefix + "_stride"), at(prefix + "_storage_offset")},
                         std::move(type));
    }
    return &base;
  }

  ir::Type sliced_type(const Value& base, const std::string& prefix) const {
    ir::Type type = base.type();
    const auto axis = find_integer(node_, position(prefix + "_slice_dim"));
    const auto start = bound(prefix + "_slice_start");
    const auto end = bound(prefix + "_slice_end");
    if (!type.shape || !axis || !start || !end) return ir::Type::tensor(base.dtype(), std::nullopt);
    type.shape->at(static_cast<std::size_t>(*axis)) = *end - *start;
    return type;
  }

  std::optional<SymExpr> bound(const std::string& keyword) const {
    if (const auto number = find_integer(node_, position(keyword))) return SymExpr(*number);
    const Value* value = find_operand(node_, position(keyword));
    return value ? value->type().value : std::nullopt;
  }

  Node& node_;
  TorchCall call_;
  std::string domain_;
  std::string op_;
  const c10::FunctionSchema& schema_;
  std::map<std::string, std::size_t> positions_;   // of a keyword among the arguments
  std::vector<Value*> bases_;                      // copies of the tensors that are written; null for None
  std::map<std::string, std::size_t> first_base_;  // version 1: of a written argument
};

}  // namespace

void unwrap_auto_functionalized(ir::Graph& graph) {
  for (Node& node : graph) {
    for (ir::Graph* body : node.subgraphs()) unwrap_auto_functionalized(*body);
    if (is_wrapper(node) && node.find_attribute("keywords")) Wrapper(node).unwrap();
  }
}

}  // namespace exportguard::importer
