#include "importer/torch_call.h"

#include <fmt/format.h>

#include "exportguard/ir/places.h"

namespace exportguard::importer {
namespace {

using ir::Argument;

/// `argument` with every operand counted `offset` further.
Argument shifted(const Argument& argument, std::size_t offset) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) return {Argument::Operand{operand->index + offset}};
  const auto* list = argument.get_if<Argument::List>();
  if (list == nullptr) return argument;
  Argument::List items;
  for (const Argument& item : *list) items.push_back(shifted(item, offset));
  return {std::move(items)};
}

/// Copies `argument`, its operands counted in the order in which they are appended to `values`.
Argument collected(const ir::Node& node, const Argument& argument, std::vector<ir::Value*>& values) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) {
    values.push_back(node.find_input(operand->index));
    return {Argument::Operand{values.size() - 1}};
  }
  const auto* list = argument.get_if<Argument::List>();
  if (list == nullptr) return argument;
  Argument::List items;
  for (const Argument& item : *list) items.push_back(collected(node, item, values));
  return {std::move(items)};
}

}  // namespace

CallArgument CallArgument::list(const std::vector<ir::Value*>& values) {
  CallArgument result{Argument{}};
  Argument::List items;
  for (ir::Value* value : values) {
    items.push_back(value ? Argument{Argument::Operand{result.values_.size()}} : Argument{});
    if (value) result.values_.push_back(value);
  }
  result.literal_ = {std::move(items)};
  return result;
}

CallArgument CallArgument::of(const ir::Node& node, std::size_t position) {
  CallArgument result{Argument{}};
  if (position < node.arguments().size()) {
    result.literal_ = collected(node, node.arguments()[position], result.values_);
  }
  return result;
}

ir::Node& TorchCall::node(std::string domain, std::string op, const std::vector<CallArgument>& arguments,
                          std::vector<ir::Type> outputs) const {
  ir::NodeSpec spec;
  spec.domain = std::move(domain);
  spec.op = std::move(op);
  spec.outputs = std::move(outputs);
  spec.is_torch = true;
  spec.source = before_ ? before_->source() : nullptr;
  for (const CallArgument& argument : arguments) {
    spec.arguments.push_back(shifted(argument.literal_, spec.inputs.size()));
    spec.inputs.insert(spec.inputs.end(), argument.values_.begin(), argument.values_.end());
  }
  return before_ ? graph_.insert_before(*before_, std::move(spec)) : graph_.append(std::move(spec));
}

ir::Value& TorchCall::aten(std::string op, const std::vector<CallArgument>& arguments, ir::Type type) const {
  return node("aten", std::move(op), arguments, {std::move(type)}).output();
}

ir::Value* find_operand(const ir::Node& node, std::size_t position) {
  if (position >= node.arguments().size()) return nullptr;
  const auto* operand = node.arguments()[position].get_if<Argument::Operand>();
  return operand ? node.find_input(operand->index) : nullptr;
}

std::vector<ir::Value*> operands(const ir::Node& node, std::size_t position) {
  std::vector<ir::Value*> values;
  if (position < node.arguments().size()) collected(node, node.arguments()[position], values);
  return values;
}

std::optional<std::int64_t> find_integer(const ir::Node& node, std::size_t position) {
  if (position >= node.arguments().size()) return std::nullopt;
  if (const auto* number = node.arguments()[position].get_if<std::int64_t>()) return *number;
  const ir::Value* value = find_operand(node, position);
  return value && value->type().value ? value->type().value->constant() : std::nullopt;
}

std::string place_of(const ir::Node& node) { return ir::placed(node.qualified_name(), node.source()); }

}  // namespace exportguard::importer
