#include <algorithm>
#include <cmath>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/axes.h"
#include "lowering/complex_rules.h"
#include "lowering/kernels.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

/// How far axes grow at both ends; by a negative number they are cut.
struct Margins {
  std::vector<std::int64_t> axes;
  std::vector<Size> before;
  std::vector<Size> after;
};

/// torch lists the margins of the last axis first.
Margins margins(LoweringContext& ctx, std::size_t rank) {
  const std::vector<Size> sizes = ctx.sizes(1);
  ctx.require(sizes.size() % 2 == 0 && sizes.size() / 2 <= rank,
              "padding must have two numbers for each of the last axes");
  Margins result;
  for (std::size_t i = 0; i < sizes.size(); i += 2) {
    if (sizes[i].number() == 0 && sizes[i + 1].number() == 0) continue;
    result.axes.push_back(static_cast<std::int64_t>(rank - 1 - i / 2));
    result.before.push_back(sizes[i]);
    result.after.push_back(sizes[i + 1]);
  }
  return result;
}

/// The margins of the axes, those before first.
std::vector<Size> amounts_of_own_axes(const Margins& m) {
  std::vector<Size> result = m.before;
  result.insert(result.end(), m.after.begin(), m.after.end());
  return result;
}

/// The margins of every axis, those before first.
std::vector<Size> amounts_of_all_axes(const Margins& m, std::size_t rank) {
  std::vector<Size> result(2 * rank, Size(0));
  for (std::size_t i = 0; i < m.axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(m.axes[i]);
    result[axis] = m.before[i];
    result[rank + axis] = m.after[i];
  }
  return result;
}

/// `number` has rank 0 and is for the mode `constant`; null is zero.
Value* padded(LoweringContext& ctx, Value* x, const Margins& m, std::string_view mode, Value* number) {
  if (m.axes.empty()) return x;
  const bool names_axes = !departs(ctx, Departure::kPadForgetsAxes);
  const DType carrier = kernel_dtype(ctx, "Pad", x->dtype());
  std::vector<Value*> operands = {
      ctx.cast(x, carrier), ctx.concat_sizes(names_axes ? amounts_of_own_axes(m) : amounts_of_all_axes(m, ctx.rank(x))),
      number ? ctx.cast(number, carrier) : nullptr};
  if (names_axes) operands.push_back(ctx.ints(m.axes));
  return ctx.op("Pad", operands, {{"mode", std::string(mode)}});
}

/// Whether a margin is never below zero: a number, or what is missing to a multiple, `-size % 8`.
bool only_grows(LoweringContext& ctx, const Size& margin) {
  if (margin.number()) return *margin.number() >= 0;
  const ir::Elements* elements = ctx.find_elements(margin.value());
  const auto call = elements != nullptr && elements->size() == 1 ? elements->front().as_call() : std::nullopt;
  return call && call->first == "Mod" && call->second.at(1).constant().value_or(0) > 0;
}

/// What a margin adds, and what it cuts.
Size growth(LoweringContext& ctx, const Size& margin) {
  return only_grows(ctx, margin) ? margin : maximum(ctx, margin, 0);
}
Size excess(LoweringContext& ctx, const Size& margin) {
  return only_grows(ctx, margin) ? Size(0) : subtract(ctx, growth(ctx, margin), margin);
}

/// The margins without what they cut, of the axes that grow.
Margins growths(LoweringContext& ctx, const Margins& m) {
  Margins result;
  for (std::size_t i = 0; i < m.axes.size(); ++i) {
    const Size before = growth(ctx, m.before[i]);
    const Size after = growth(ctx, m.after[i]);
    if (before.number() == 0 && after.number() == 0) continue;
    result.axes.push_back(m.axes[i]);
    result.before.push_back(before);
    result.after.push_back(after);
  }
  return result;
}

Value* cut(LoweringContext& ctx, Value* x, std::int64_t axis, const Size& before, const Size& after) {
  const Size first = excess(ctx, before);
  const Size last = excess(ctx, after);
  if (first.number() == 0 && last.number() == 0) return x;
  const Size end = last.number() == 0 ? Size(kEnd) : subtract(ctx, size_of(ctx, x, axis), last);
  return ctx.slice(x, axis, first, end);
}

/// torch cuts what has grown; Pad grows what has been cut.
void pad_with_mode(LoweringContext& ctx, std::string_view mode) {
  Value* x = ctx.input(0);
  const Margins m = margins(ctx, ctx.rank(x));
  x = padded(ctx, x, growths(ctx, m), mode, nullptr);
  for (std::size_t i = 0; i < m.axes.size(); ++i) x = cut(ctx, x, m.axes[i], m.before[i], m.after[i]);
  ctx.result(x);
}

/// What is filled in by argument `i`; null for zero, unless that is a negative one.
Value* filler(LoweringContext& ctx, std::size_t i, DType dtype) {
  const auto number = ctx.has(i) ? ctx.find_number(i) : 0.0;
  return number != 0.0 || std::signbit(*number) ? ctx.scalar(i, dtype) : nullptr;
}

void lower_constant_pad(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  ctx.result(padded(ctx, x, margins(ctx, ctx.rank(x)), "constant", filler(ctx, 2, x->dtype())));
}

void lower_reflection_pad(LoweringContext& ctx) { pad_with_mode(ctx, "reflect"); }

void lower_replication_pad(LoweringContext& ctx) { pad_with_mode(ctx, "edge"); }

// ------------------------------------------------------------------------------------------------ circular

/// One axis continued from its other end: position p of the result is position p - before, counted around once. Margins
/// wider than the axis find no element, as in torch. Pad has a mode for it, but not before opset 19.
Value* wrapped(LoweringContext& ctx, Value* x, std::int64_t axis, const Size& before, const Size& after) {
  const Size size = size_of(ctx, x, axis);
  Value* positions = range(ctx, add(ctx, add(ctx, size, before), after));
  Value* from = ctx.op("Sub", {positions, as_dim(ctx, before)});
  Value* count = as_dim(ctx, size);
  Value* is_behind = ctx.op("GreaterOrEqual", {from, count});
  return ctx.gather(x, ctx.where(is_behind, ctx.op("Sub", {from, count}), from), axis);  // below 0: from the end
}

/// Here torch continues what the cuts have left.
void lower_circular_pad(LoweringContext& ctx) {
  Value* x = ctx.input(0);
  const Margins m = margins(ctx, ctx.rank(x));
  for (std::size_t i = 0; i < m.axes.size(); ++i) {
    x = cut(ctx, x, m.axes[i], m.before[i], m.after[i]);
    x = wrapped(ctx, x, m.axes[i], growth(ctx, m.before[i]), growth(ctx, m.after[i]));
  }
  ctx.result(x);
}

// ------------------------------------------------------------------------------------------------ any mode

void lower_pad(LoweringContext& ctx) {
  const std::string_view mode = ctx.has(2) ? ctx.text(2) : std::string_view("constant");
  if (mode == "circular") return lower_circular_pad(ctx);
  if (mode == "reflect") return lower_reflection_pad(ctx);
  if (mode == "replicate") return lower_replication_pad(ctx);
  ctx.require(mode == "constant",
              "the mode must be constant, reflect, replicate or circular, got " + std::string(mode));
  Value* x = ctx.input(0);
  ctx.result(padded(ctx, x, margins(ctx, ctx.rank(x)), mode, filler(ctx, 3, x->dtype())));
}

}  // namespace

void populate_padding(LoweringTable& table) {
  table.add("aten.constant_pad_nd.default", lower_constant_pad);
  table.add("aten.pad.default", lower_pad);
  table.add({"aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default"},
            lower_reflection_pad);
  table.add({"aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default"},
            lower_replication_pad);
  table.add("aten._pad_circular.default", lower_circular_pad);
  table.add_complex({"aten.constant_pad_nd.default", "aten.pad.default"}, separate_padding);
}

}  // namespace exportguard::lowering
