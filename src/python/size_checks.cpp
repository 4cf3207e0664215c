#include "python/size_checks.h"

namespace exportguard::python {

std::size_t refuse_other_sizes(ir::Model& model, const std::vector<NamedCheck>& checks,
                               const std::vector<NamedAxis>& names) {
  std::vector<lowering::SizeCheck> made;
  for (const auto& [condition, relations, sizes] : checks) {
    lowering::SizeCheck& check = made.emplace_back();
    check.condition = condition;
    for (const auto& [op, first, second, holds] : relations) {
      check.any_of.push_back({op, SymExpr::parse(first), SymExpr::parse(second), holds});
    }
    for (const auto& [symbol, input, axis] : sizes) check.sizes.push_back({symbol, input, axis});
  }
  std::vector<lowering::AxisName> called;
  for (const auto& [input, axis, name] : names) called.push_back({input, axis, name});
  return lowering::refuse_other_sizes(model, made, called);
}

}  // namespace exportguard::python
