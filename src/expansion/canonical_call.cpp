#include "expansion/canonical_call.h"

#include <fmt/format.h>

#include "exportguard/common/dtypes.h"

namespace exportguard::expansion {
namespace {

using ir::Argument;

/// Unlike for unlike arguments; operands are told apart by their types, which the key has, too.
std::string spelled(const Argument& argument) {
  if (const auto* operand = argument.get_if<Argument::Operand>()) return fmt::format("%{};", operand->index);
  if (const auto* flag = argument.get_if<bool>()) return *flag ? "true;" : "false;";
  if (const auto* number = argument.get_if<std::int64_t>()) return fmt::format("{};", *number);
  if (const auto* number = argument.get_if<double>()) return fmt::format("{:a};", *number);
  if (const auto* number = argument.get_if<std::complex<double>>()) {
    return fmt::format("{:a}+{:a}j;", number->real(), number->imag());
  }
  if (const auto* text = argument.get_if<std::string>()) return fmt::format("\"{}:{};", text->size(), *text);
  if (const auto* dtype = argument.get_if<DType>()) return fmt::format("dtype:{};", name(*dtype));
  if (const auto* symbol = argument.get_if<Argument::Symbol>()) return fmt::format("@{};", symbol->name);
  const auto* list = argument.get_if<Argument::List>();
  if (list == nullptr) return "None;";
  std::string text = "(";
  for (const Argument& item : *list) text += spelled(item);
  return text + ")";
}

}  // namespace

CanonicalCall::CanonicalCall(const ir::Node& node) : call_{node.qualified_name(), node.arguments(), {}} {
  key_ = call_.target + ":";
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    const ir::Value* operand = node.find_input(i);
    call_.operands.push_back(operand ? canonical(operand->type()) : ir::Type{});
    key_ += call_.operands.back().str() + ";";
  }
  for (const Argument& argument : call_.arguments) key_ += spelled(argument);
}

SymExpr CanonicalCall::canonical(const SymExpr& expression) {
  for (const std::string& symbol : expression.symbols()) {
    if (canonicals_.contains(symbol)) continue;
    const std::string name = fmt::format("d{}", canonicals_.size());
    canonicals_.emplace(symbol, SymExpr::symbol(name));
    originals_.emplace(name, SymExpr::symbol(symbol));
  }
  return expression.substitute(canonicals_);
}

ir::Type CanonicalCall::canonical(const ir::Type& type) {
  ir::Type result = type;
  if (result.value) result.value = canonical(*result.value);
  if (!result.shape) return result;
  for (ir::Dim& dim : *result.shape) dim = canonical(dim);
  return result;
}

}  // namespace exportguard::expansion
