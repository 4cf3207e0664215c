#include "optimizer/heads.h"

namespace exportguard::optimizer {

bool swaps_heads(const ir::Node* node) {
  static const std::vector<std::int64_t> kSwap = {0, 2, 1, 3};
  const auto* permutation = node && node->is("", "Transpose") ? find_ints_attribute(*node, "perm") : nullptr;
  return permutation && *permutation == kSwap && node->input(0).type().rank().value_or(4) == 4;
}

Value& heads_joined(Rewriter& rewriter, Value& x) {
  const ir::Shape& shape = *shape_of(x);
  return rewriter.reshape(x, {shape[0], shape[1], shape[2] * shape[3]});
}

Value* repeated_heads(const Value* value) {
  const ir::Node* joined = producer_of(value, "Reshape");
  const ir::Node* stretched = joined ? producer_of(joined->find_input(0), "Expand") : nullptr;
  const ir::Node* split = stretched ? stretched->input(0).producer() : nullptr;
  if (!split || !(split->is("", "Unsqueeze") || split->is("", "Reshape"))) return nullptr;
  const auto& from = shape_of(split->input(0));
  const auto& five = shape_of(stretched->output());
  const auto& after = shape_of(*value);
  const auto& before = shape_of(split->output());
  if (!from || !five || !after || !before || from->size() != 4 || five->size() != 5 || before->size() != 5)
    return nullptr;
  const ir::Shape wanted = {(*from)[0], (*from)[1], ir::Dim(1), (*from)[2], (*from)[3]};
  const auto times = (*five)[2].constant();
  if (!times || *before != wanted) return nullptr;
  const ir::Shape stretched_shape = {(*from)[0], (*from)[1], ir::Dim(*times), (*from)[2], (*from)[3]};
  const ir::Shape joined_shape = {(*from)[0], (*from)[1] * ir::Dim(*times), (*from)[2], (*from)[3]};
  return *five == stretched_shape && *after == joined_shape ? &split->input(0) : nullptr;
}

bool shares_heads(const Value& query, const Value* key, const Value* value) {
  if (!key || !value || !has_rank(query, 4)) return false;
  const auto heads = dim(*key, 1)->constant();
  const auto query_heads = dim(query, 1)->constant();
  return heads && query_heads && dim(*value, 1) == ir::Dim(*heads) && *heads > 0 && *query_heads % *heads == 0;
}

}  // namespace exportguard::optimizer
