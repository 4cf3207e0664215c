#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"

namespace exportguard::lowering {
namespace {

void lower_binary(LoweringContext& ctx, std::string_view op) {
  ctx.result(ctx.op(op, {ctx.scalar(0, DType::kBool), ctx.scalar(1, DType::kBool)}));
}

void lower_logical_and(LoweringContext& ctx) { lower_binary(ctx, "And"); }
void lower_logical_or(LoweringContext& ctx) { lower_binary(ctx, "Or"); }
void lower_logical_xor(LoweringContext& ctx) { lower_binary(ctx, "Xor"); }
void lower_logical_not(LoweringContext& ctx) { ctx.result(ctx.op("Not", {ctx.scalar(0, DType::kBool)})); }

}  // namespace

void populate_logical(LoweringTable& table) {
  table.add("aten.logical_and.default", lower_logical_and);
  table.add("aten.logical_or.default", lower_logical_or);
  table.add("aten.logical_xor.default", lower_logical_xor);
  table.add("aten.logical_not.default", lower_logical_not);
  table.add_complex(
      {"aten.logical_not.default", "aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default"},
      separate_truth);
}

}  // namespace exportguard::lowering
