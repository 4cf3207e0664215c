#include <algorithm>
#include <limits>

#include "exportguard/ir/inference.h"

// Operators that compute each element by itself: over one operand, or over several that are broadcast. Sums, products
// and the like of sizes stay expressions.

namespace exportguard::ir {
namespace {

void infer_like_input(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(0)); }

/// Sequences and optionals pass as well.
void infer_identity(InferenceContext& ctx) {
  if (!ctx.has(0)) return;
  const Type& type = *ctx.find_type(0);
  ctx.set(0, Type{type.kind, type.dtype, type.shape, false, std::nullopt});
  if (const auto elements = ctx.elements(0)) ctx.set_elements(*elements);
}

/// The shape of all operands broadcast; nothing if one of them has none.
std::optional<Shape> broadcast_shape(const InferenceContext& ctx) {
  std::optional<Shape> result = Shape{};
  for (std::size_t i = 0; i < ctx.input_count(); ++i) {
    const auto shape = ctx.shape(i);
    if (!shape) return std::nullopt;
    result = ctx.broadcast(*result, *shape);
  }
  return result;
}

std::optional<SymExpr> combined(std::string_view op, const SymExpr& a, const SymExpr& b) {
  if (op == "Add" || op == "Sum") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Max") return max(a, b);
  if (op == "Min") return min(a, b);
  if (!a.is_constant() || !b.is_constant() || b.constant() == 0) return std::nullopt;
  const std::int64_t dividend = *a.constant();
  const std::int64_t divisor = *b.constant();
  if (divisor == -1) return std::nullopt;  // the least integer has no negation
  if (op == "Div") return SymExpr(dividend / divisor);
  return op == "Mod" ? std::optional(mod(a, b)) : std::nullopt;
}

const SymExpr& broadcast_element(const Elements& elements, std::size_t i) {
  return elements[elements.size() == 1 ? 0 : i];
}

/// Sizes computed from sizes.
std::optional<Elements> computed_elements(const InferenceContext& ctx) {
  std::optional<Elements> total = ctx.elements(0);
  for (std::size_t i = 1; total && i < ctx.input_count(); ++i) {
    const auto other = ctx.elements(i);
    if (!other || total->empty() || other->empty()) return std::nullopt;
    const std::size_t count = std::max(total->size(), other->size());
    if (std::min(total->size(), other->size()) != count && std::min(total->size(), other->size()) != 1) {
      return std::nullopt;
    }
    Elements result;
    for (std::size_t k = 0; k < count; ++k) {
      const auto element = combined(ctx.op(), broadcast_element(*total, k), broadcast_element(*other, k));
      if (!element) return std::nullopt;
      result.push_back(*element);
    }
    total = std::move(result);
  }
  return total;
}

/// Whether an element type holds those that are numbers, which tensors wrap otherwise.
bool fit(const Elements& elements, DType dtype) {
  using Int32 = std::numeric_limits<std::int32_t>;
  return dtype == DType::kInt64 || std::ranges::all_of(elements, [](const SymExpr& element) {
           const std::int64_t number = element.constant().value_or(0);
           return number >= Int32::min() && number <= Int32::max();
         });
}

void infer_arithmetic(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(0), broadcast_shape(ctx));
  const DType dtype = ctx.dtype(0);
  const bool follows = (dtype == DType::kInt64 || dtype == DType::kInt32) && ctx.integer("fmod", 0) == 0;
  if (!follows) return;
  const auto elements = unless_overflow([&] { return computed_elements(ctx); });
  if (elements && fit(*elements, dtype)) ctx.set_elements(*elements);
}

void infer_comparison(InferenceContext& ctx) { ctx.set(0, DType::kBool, broadcast_shape(ctx)); }

void infer_test(InferenceContext& ctx) { ctx.set(0, DType::kBool, ctx.shape(0)); }

void infer_negation(InferenceContext& ctx) {
  infer_like_input(ctx);
  const auto elements = unless_overflow([&] {
    auto negated = ctx.elements(0);
    if (negated) std::ranges::transform(*negated, negated->begin(), [](const SymExpr& element) { return 0 - element; });
    return negated;
  });
  if (elements && fit(*elements, ctx.dtype(0))) ctx.set_elements(*elements);
}

void infer_where(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(1) == DType::kUndefined ? ctx.dtype(2) : ctx.dtype(1), broadcast_shape(ctx));
}

}  // namespace

void populate_elementwise(InferenceTable& table) {
  table.add({"Abs",
             "Acos",
             "Acosh",
             "Asin",
             "Asinh",
             "Atan",
             "Atanh",
             "BitwiseNot",
             "Ceil",
             "Celu",
             "Cos",
             "Cosh",
             "Elu",
             "Erf",
             "Exp",
             "Floor",
             "Gelu",
             "HardSigmoid",
             "HardSwish",
             "Hardmax",
             "LRN",
             "LeakyRelu",
             "Log",
             "LogSoftmax",
             "LpNormalization",
             "Mish",
             "Not",
             "Reciprocal",
             "Relu",
             "Round",
             "Selu",
             "Shrink",
             "Sigmoid",
             "Sign",
             "Sin",
             "Sinh",
             "Softmax",
             "Softplus",
             "Softsign",
             "Sqrt",
             "Swish",
             "Tan",
             "Tanh",
             "ThresholdedRelu",
             "MeanVarianceNormalization"},
            infer_like_input);
  table.add({"Clip", "PRelu"}, infer_like_input);  // bounds and slopes are broadcast to the operand
  table.add({"Identity"}, infer_identity);
  table.add({"Neg"}, infer_negation);

  table.add({"Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "BitShift", "BitwiseAnd",
             "BitwiseOr", "BitwiseXor"},
            infer_arithmetic);

  table.add({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"}, infer_comparison);
  table.add({"IsInf", "IsNaN"}, infer_test);
  table.add({"Where"}, infer_where);
  table.add_in("com.microsoft", {"Gelu", "FastGelu", "QuickGelu", "BiasGelu"}, infer_like_input);
}

}  // namespace exportguard::ir
