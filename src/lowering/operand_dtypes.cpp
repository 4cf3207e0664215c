#include "lowering/operand_dtypes.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace exportguard::lowering {
namespace {

enum class Rule : std::uint8_t {
  kSame,      ///< the tensors at the positions have one dtype
  kWeights,   ///< those behind the first one have its dtype, or are float32 beside a narrower one
  kFloating,  ///< the first one is of floats, unless the second position says a dtype
};

struct Row {
  Rule rule;
  std::vector<std::size_t> positions;
};

// Positions in the schemas of torch 2.11 to 2.13.
const std::unordered_map<std::string_view, Row>& rows() {
  static const std::unordered_map<std::string_view, Row> kRows = {
      {"aten.linear.default", {Rule::kSame, {0, 1, 2}}},
      {"aten.matmul.default", {Rule::kSame, {0, 1}}},
      {"aten.mm.default", {Rule::kSame, {0, 1}}},
      {"aten.bmm.default", {Rule::kSame, {0, 1}}},
      {"aten.mv.default", {Rule::kSame, {0, 1}}},
      {"aten.dot.default", {Rule::kSame, {0, 1}}},
      {"aten.vdot.default", {Rule::kSame, {0, 1}}},
      {"aten.addmm.default", {Rule::kSame, {0, 1, 2}}},
      {"aten.addmv.default", {Rule::kSame, {0, 1, 2}}},
      {"aten.baddbmm.default", {Rule::kSame, {0, 1, 2}}},
      {"aten.addbmm.default", {Rule::kSame, {0, 1, 2}}},
      {"aten.scaled_dot_product_attention.default", {Rule::kSame, {0, 1, 2}}},
      {"aten.layer_norm.default", {Rule::kWeights, {0, 2, 3}}},
      {"aten.group_norm.default", {Rule::kWeights, {0, 2, 3}}},
      {"aten.batch_norm.default", {Rule::kWeights, {0, 1, 2, 3, 4}}},
      {"aten.softmax.int", {Rule::kFloating, {0, 2}}},
      {"aten.log_softmax.int", {Rule::kFloating, {0, 2}}},
  };
  return kRows;
}

const Value* find_tensor(const LoweringContext& ctx, std::size_t position) {
  const std::vector<ir::Argument>& arguments = ctx.node().arguments();
  if (position >= arguments.size()) return nullptr;
  const auto* operand = arguments[position].get_if<ir::Argument::Operand>();
  return operand == nullptr ? nullptr : ctx.node().find_input(operand->index);
}

bool may_stand_beside(DType first, DType other, Rule rule) {
  const bool is_narrow = first == DType::kFloat16 || first == DType::kBFloat16;
  return first == other || (rule == Rule::kWeights && is_narrow && other == DType::kFloat32);
}

void require_one_dtype(const LoweringContext& ctx, const Row& row, const Value& first) {
  for (const std::size_t position : row.positions) {
    const Value* other = find_tensor(ctx, position);
    if (other == nullptr || may_stand_beside(first.dtype(), other->dtype(), row.rule)) continue;
    ctx.fail(fmt::format("torch refuses operands of {} and {} when it runs; convert one of them with .to(dtype)",
                         name(first.dtype()), name(other->dtype())));
  }
}

}  // namespace

void require_dtypes_of_eager(const LoweringContext& ctx) {
  const auto found = rows().find(ctx.node().qualified_name());
  if (found == rows().end()) return;
  const Row& row = found->second;
  const Value* first = find_tensor(ctx, row.positions.front());
  if (first == nullptr) return;
  if (row.rule != Rule::kFloating) return require_one_dtype(ctx, row, *first);
  const bool is_told = ctx.has(row.positions.back());
  if (is_told || is_floating(first->dtype()) || is_complex(first->dtype())) return;
  ctx.fail(fmt::format("torch refuses {} when it runs; pass dtype=, or convert with .to(dtype)", name(first->dtype())));
}

}  // namespace exportguard::lowering
