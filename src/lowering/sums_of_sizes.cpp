#include "lowering/sums_of_sizes.h"

#include <algorithm>
#include <optional>
#include <string>

namespace exportguard::lowering {
namespace {

template <typename IsFactor>
bool is_sum_of(const SymExpr& expression, IsFactor is_factor) {
  return std::ranges::all_of(expression.terms(), [&](const SymExpr::Term& term) {
    return term.coefficient >= 0 && std::ranges::all_of(term.factors, is_factor);
  });
}

/// Torch calls a number that tensor data tell u0, u1, and so on.
bool is_of_data(const std::string& name) {
  return name.front() == 'u' && name.find_first_not_of("0123456789", 1) == std::string::npos;
}

}  // namespace

bool is_sum_of_sizes(const SymExpr& expression) {
  return is_sum_of(expression, [](const SymExpr& factor) { return factor.symbol_name().has_value(); });
}

bool is_sum_of_input_sizes(const SymExpr& expression) {
  return is_sum_of(expression, [](const SymExpr& factor) {
    const auto name = factor.symbol_name();
    return name && !is_of_data(*name);
  });
}

}  // namespace exportguard::lowering
