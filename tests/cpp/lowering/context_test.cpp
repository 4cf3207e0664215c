#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "exportguard/common/errors.h"
#include "exportguard/ir/text.h"
#include "exportguard/lowering/context.h"
#include "exportguard/lowering/lower.h"

namespace exportguard::lowering {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ir::Model parse(std::string_view text) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  return model;
}

/// Lowers `text` with one row, for the operator `aten.probe.default`.
std::string lowered_with(std::string_view text, Lowering lowering) {
  LoweringTable table;
  table.add("aten.probe.default", lowering);
  ir::Model model = parse(text);
  lower(model, {.opset = 20, .table = &table});
  return ir::print(*model.graph);
}

std::size_t count(const std::string& text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

void flatten_two(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.reshape(x, {Size(ctx.dim_of(x, 0)), Size(ctx.dim_of(x, 1)), Size(-1)}));
}

TEST(Reshape, CopiesSizesThatStayWhereTheyAreAndResolvesTheInferredOne) {
  const std::string text = lowered_with(R"(
    graph(%x: f32[batch,seq,4,8]):
      %y: f32[batch,seq,32] = aten.probe.default(%x)
      return (%y))",
                                        flatten_two);
  EXPECT_THAT(text, HasSubstr("{0, 0, 32}"));
  EXPECT_THAT(text, Not(HasSubstr("Shape(")));
  EXPECT_THAT(text, Not(HasSubstr("allowzero")));
}

void merge_leading(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.reshape(x, {Size(ctx.dim_value(ctx.size(x, 0) * ctx.size(x, 1))), Size(8)}));
}

TEST(Reshape, AllowsZeroWhereASizeIsComputed) {
  const std::string text = lowered_with(R"(
    graph(%x: f32[batch,seq,8]):
      %y: f32[batch*seq,8] = aten.probe.default(%x)
      return (%y))",
                                        merge_leading);
  EXPECT_THAT(text, HasSubstr("allowzero=1"));
}

void sum_the_last(LoweringContext& ctx) { ctx.result(ctx.reduce("ReduceSum", ctx.input(0), {-1}, false)); }

TEST(Reduce, CountsAxesFromTheStart) {
  const std::string text = lowered_with(R"(
    graph(%x: f32[batch,8]):
      %y: f32[batch] = aten.probe.default(%x)
      return (%y))",
                                        sum_the_last);
  EXPECT_THAT(text, HasSubstr("{1}"));
  EXPECT_THAT(text, Not(HasSubstr("{-1}")));
}

void read_sizes_twice(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  Value* first = ctx.reshape(x, {Size(ctx.dim_value(ctx.size(x, 0) * ctx.size(x, 1)))});
  ctx.result(ctx.expand(ctx.unsqueeze(first, {0}), {Size(3), Size(ctx.dim_value(ctx.size(x, 1) * ctx.size(x, 0)))}));
}

TEST(Sizes, AreComputedOnceForEachExpression) {
  const std::string text = lowered_with(R"(
    graph(%x: f32[a,b]):
      %y: f32[3,a*b] = aten.probe.default(%x)
      %z: f32[3,a*b] = aten.probe.default(%x)
      return (%y, %z))",
                                        read_sizes_twice);
  EXPECT_EQ(count(text, "Shape(%x)"), 2U);
  EXPECT_EQ(count(text, "= Mul("), 1U);
}

void expand_to_itself(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(ctx.expand(x, ctx.sizes_of(x)));
}

TEST(Expand, ToTheSizeThatIsThereIsNoNode) {
  const std::string text = lowered_with(R"(
    graph(%x: f32[a,b]):
      %y: f32[a,b] = aten.probe.default(%x)
      return (%y))",
                                        expand_to_itself);
  EXPECT_THAT(text, HasSubstr("return (%x"));
}

TEST(Sizes, OfASymbolicIntAreTakenFromTheInputsWithoutALowering) {
  LoweringTable empty;
  ir::Model model = parse(R"(
    graph(%x: f32[a,b]):
      %n: int{a} = aten.sym_size.int(%x, 0)
      %m: int{a + 1} = operator.add(%n, 1)
      return (%m))");
  lower(model, {.opset = 20, .table = &empty});
  EXPECT_EQ(count(ir::print(*model.graph), "Shape(%x)"), 1U);
}

void floor_half_of_a_difference(LoweringContext& ctx) {
  const Value* x = ctx.input(0);
  const SymExpr difference = ctx.size(x, 0) - ctx.size(x, 1);
  ctx.result(ctx.dim_value(SymExpr::call("FloorDiv", {difference, SymExpr(2)})));
}

// ONNX divides towards zero: a dividend that may be negative is made a multiple first.
TEST(Sizes, FloorDivisionOfANumberThatMayBeNegativeFloors) {
  const std::string text = lowered_with(R"(
    graph(%x: f32[a,b]):
      %y: i64[1] = aten.probe.default(%x)
      return (%y))",
                                        floor_half_of_a_difference);
  EXPECT_THAT(text, HasSubstr("Mod("));
}

TEST(Lower, ReportsEveryOperatorWithoutALoweringAtOnce) {
  LoweringTable empty;
  ir::Model model = parse(R"(
    graph(%x: f32[2]):
      %a: f32[2] = aten.foo.default(%x)
      %b: f32[2] = aten.bar.default(%a)
      %c: f32[2] = aten.foo.default(%b)
      return (%c))");
  try {
    lower(model, {.opset = 20, .table = &empty});
    FAIL() << "nothing was reported";
  } catch (const LoweringError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 operators without a lowering"));
    EXPECT_THAT(error.what(), HasSubstr("aten.bar.default (1x)"));
    EXPECT_THAT(error.what(), HasSubstr("aten.foo.default (2x)"));
  }
}

TEST(Lower, RefusesAnOpsetOutOfRange) {
  ir::Model model = parse("graph(%x: f32[2]):\n  return (%x)");
  EXPECT_THROW(
      try { lower(model, {.opset = 12}); } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "opset must be between 18 and 25, got 12; pass opset=18 or more");
        throw;
      },
      InvalidArgument);
}

void wants_a_number(LoweringContext& ctx) { ctx.result(ctx.constant(ctx.number(1), DType::kFloat32)); }

TEST(Arguments, OfTheWrongKindAreNamedWithWhatCame) {
  LoweringTable table;
  table.add("aten.probe.default", wants_a_number);
  ir::Model model = parse(R"(
    graph(%x: f32[2]):
      %y: f32[] = aten.probe.default(%x, "text")
      return (%y))");
  try {
    lower(model, {.opset = 20, .table = &table});
    FAIL() << "nothing was reported";
  } catch (const LoweringError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot lower aten.probe.default"));
    EXPECT_THAT(error.what(), HasSubstr("argument 1 must be an integer, got \"text\""));
  }
}

void three_constants(LoweringContext& ctx) {
  Value* zero = ctx.constant(0.0, DType::kFloat32);
  Value* minus_zero = ctx.constant(-0.0, DType::kFloat32);
  Value* again = ctx.constant(std::int64_t{0}, DType::kFloat32);
  ctx.require(zero != minus_zero, "0 and -0 are one constant");
  ctx.require(zero == again, "0 and 0 are two constants");
  Value* nan = ctx.constant(std::numeric_limits<double>::quiet_NaN(), DType::kFloat32);
  ctx.result(ctx.op("Add", {ctx.input(0), nan}));
}

TEST(Constants, AreSharedWhereTheyAreTheSame) {
  EXPECT_NO_THROW(lowered_with(R"(
    graph(%x: f32[2]):
      %y: f32[2] = aten.probe.default(%x)
      return (%y))",
                               three_constants));
}

// torch.result_type: a dimension outranks rank 0, which outranks a number; only a higher kind is taken over.
void cast_to_promoted(LoweringContext& ctx) { ctx.result(ctx.cast(ctx.input(0), ctx.promoted({0, 1}))); }

std::string promoted(std::string_view other, std::string_view result) {
  return lowered_with(fmt::format("graph(%x: f16[2], %r: f32[], %i: i32[2], %n: float):\n"
                                  "  %y: {}[2] = aten.probe.default({})\n  return (%y)",
                                  result, other),
                      cast_to_promoted);
}

TEST(Promotion, FollowsTorch) {
  EXPECT_THAT(promoted("%x, %r", "f16"), Not(HasSubstr("Cast")));  // rank 0 of the same kind does not count
  EXPECT_THAT(promoted("%x, 1.5", "f16"), Not(HasSubstr("Cast")));
  EXPECT_THAT(promoted("%i, 1.5", "f32"), HasSubstr("Cast"));  // a number of a higher kind: the default dtype
  EXPECT_THAT(promoted("%i, %n", "f32"), HasSubstr("Cast"));
  EXPECT_THAT(promoted("%i, %x", "f16"), HasSubstr("Cast"));
}

}  // namespace
}  // namespace exportguard::lowering
