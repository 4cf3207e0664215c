#include "optimizer/heads.h"

namespace exportguard::optimizer {

bool swaps_heads(const ir::Node* node) {
  static const std::vector<std::int64_t> kSwap = {0, 2, 1, 3};
  const auto* permutation = node && node->is("", "Transpose") ? find_ints_attribute(*node, "perm") : nullptr;
  return permutation && *permutation == kSwap;
}

Value& heads_joined(Rewriter& rewriter, Value& x) {
  const ir::Shape& shape = *shape_of(x);
  return rewriter.reshape(x, {shape[0], shape[1], shape[2] * shape[3]});
}

}  // namespace exportguard::optimizer
