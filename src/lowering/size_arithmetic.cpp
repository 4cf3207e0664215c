#include "lowering/size_arithmetic.h"

#include <algorithm>

#include "lowering/axes.h"

namespace exportguard::lowering {
namespace {

constexpr std::int64_t kLongestConstantRange = 4096;  // a longer one is made at run time, to keep the file small

Size combine(LoweringContext& ctx, std::string_view op, const Size& a, const Size& b) {
  return Size(ctx.op(op, {as_dim(ctx, a), as_dim(ctx, b)}));
}

}  // namespace

Size size_of(LoweringContext& ctx, Value* value, std::int64_t axis) {
  const auto number = ctx.size(value, axis).constant();
  return number ? Size(*number) : Size(ctx.dim_of(value, axis));
}

Size add(LoweringContext& ctx, const Size& a, const Size& b) {
  if (a.number() && b.number()) return *a.number() + *b.number();
  if (a.number() == 0) return b;
  return b.number() == 0 ? a : combine(ctx, "Add", a, b);
}

Size subtract(LoweringContext& ctx, const Size& a, const Size& b) {
  if (a.number() && b.number()) return *a.number() - *b.number();
  return b.number() == 0 ? a : combine(ctx, "Sub", a, b);
}

Size multiply(LoweringContext& ctx, const Size& a, const Size& b) {
  if (a.number() && b.number()) return *a.number() * *b.number();
  if (a.number() == 0 || b.number() == 1) return a;
  if (b.number() == 0 || a.number() == 1) return b;
  return combine(ctx, "Mul", a, b);
}

Size maximum(LoweringContext& ctx, const Size& a, const Size& b) {
  if (a.number() && b.number()) return std::max(*a.number(), *b.number());
  return combine(ctx, "Max", a, b);
}

Size broadcast(LoweringContext& ctx, const Size& a, const Size& b) {
  if (a.number() == 1) return b;
  if (b.number() == 1 || a.number()) return a;
  if (b.number() || a.value() == b.value()) return b;
  return multiply(ctx, maximum(ctx, a, b), combine(ctx, "Min", 1, combine(ctx, "Min", a, b)));
}

Size merged_size(LoweringContext& ctx, Value* value, std::size_t first, std::size_t last) {
  Size product = 1;
  for (std::size_t axis = first; axis < last; ++axis) {
    product = multiply(ctx, product, size_of(ctx, value, static_cast<std::int64_t>(axis)));
  }
  return product;
}

Size from_start(LoweringContext& ctx, const Size& position, const Size& size) {
  if (position.number()) return *position.number() < 0 ? add(ctx, position, size) : position;
  Value* dim = position.value();
  Value* wrapped = ctx.op("Add", {dim, as_dim(ctx, size)});
  return Size(ctx.where(ctx.op("Less", {dim, ctx.ints({0})}), wrapped, dim));
}

Value* as_dim(LoweringContext& ctx, const Size& size) { return ctx.concat_sizes({size}); }

Value* as_scalar(LoweringContext& ctx, const Size& size) {
  return size.number() ? ctx.constant(*size.number(), DType::kInt64) : ctx.dim_as_scalar(size.value());
}

Value* range(LoweringContext& ctx, const Size& count) {
  if (count.number() && *count.number() <= kLongestConstantRange) {
    return ctx.ints(counted(static_cast<std::size_t>(std::max<std::int64_t>(*count.number(), 0))));
  }
  return ctx.op("Range", {ctx.constant(0, DType::kInt64), as_scalar(ctx, count), ctx.constant(1, DType::kInt64)});
}

std::vector<Size> with_merged(std::vector<Size> sizes, std::size_t first, std::size_t last, const Size& merged) {
  const auto begin = sizes.begin();
  sizes.erase(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last));
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(first), merged);
  return sizes;
}

}  // namespace exportguard::lowering
