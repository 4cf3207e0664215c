#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "exportguard/ir/inference.h"
#include "ir/inference/older_forms.h"

// Sizes of tensors, and operators that only change the shape.

namespace exportguard::ir {
namespace {

SymExpr product(const Shape& shape) {
  SymExpr total = 1;
  for (const Dim& dim : shape) total = total * dim;
  return total;
}

std::int64_t clamped(std::int64_t position, std::int64_t count) {
  return std::clamp<std::int64_t>(position < 0 ? position + count : position, 0, count);
}

void infer_shape(InferenceContext& ctx) {
  const auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, DType::kInt64, ctx.fresh_shape(1));  // a tensor without that axis gives none
  const auto count = static_cast<std::int64_t>(shape->size());
  const std::int64_t start = clamped(ctx.integer("start", 0), count);
  const std::int64_t end = std::max(start, clamped(ctx.integer("end", count), count));
  ctx.set(0, DType::kInt64, Shape{end - start});
  ctx.set_elements(Elements(shape->begin() + start, shape->begin() + end));
}

void infer_size(InferenceContext& ctx) {
  ctx.set(0, DType::kInt64, Shape{});
  if (const auto shape = ctx.shape(0)) ctx.set_elements({product(*shape)});
}

// ------------------------------------------------------------------------------------------------ reshaping

/// What `-1` stands for: the elements over the other sizes.
Dim remaining(const InferenceContext& ctx, const std::optional<Shape>& data, const Shape& sizes) {
  SymExpr others = 1;
  for (const Dim& size : sizes) {
    if (size.constant() != -1) others = others * size;
  }
  if (!data || others.constant() == 0) return ctx.fresh();
  const SymExpr total = product(*data);
  const SymExpr quotient = floor_div(total, others);
  if (quotient * others == total) return quotient;
  if (total.is_constant() && others.is_constant()) {
    ctx.fail(
        fmt::format("{} elements cannot be given sizes whose product is a multiple of {}", total.str(), others.str()));
  }
  return ctx.fresh();
}

bool is_at_least(const SymExpr& size, std::int64_t least);

/// The same of a symbol, which stands for a size, or of a call.
bool is_factor_at_least(const SymExpr& factor, std::int64_t least) {
  const auto call = factor.as_call();
  if (!call) return least <= 0;
  const auto& [function, arguments] = *call;
  const auto holds = [&](const SymExpr& argument) { return is_at_least(argument, least); };
  if (function == "Max") return std::ranges::any_of(arguments, holds);
  if (function == "Min") return std::ranges::all_of(arguments, holds);
  if (function == "Mod") return least <= 0 && is_at_least(arguments[1], 1);
  const bool is_quotient = function == "FloorDiv" || function == "CeilDiv";
  return least <= 0 && is_quotient && is_at_least(arguments[0], 0) && is_at_least(arguments[1], 1);
}

/// Whether an expression of sizes, none of which is less than 0, is never less than 0 or 1.
bool is_at_least(const SymExpr& size, std::int64_t least) {
  std::int64_t low = 0;
  for (const SymExpr::Term& term : size.terms()) {
    const auto are_at_least = [&](std::int64_t each) {
      return std::ranges::all_of(term.factors, [&](const SymExpr& one) { return is_factor_at_least(one, each); });
    };
    if (term.factors.empty() || (term.coefficient > 0 && are_at_least(1))) {
      low += term.coefficient;
    } else if (term.coefficient < 0 || !are_at_least(0)) {
      return false;
    }
  }
  return low >= least;
}

/// Whether a size is 0 wherever another one is: every factor of that is one of each of its terms.
bool is_zero_where(const SymExpr& other, const SymExpr& size) {
  const auto terms = other.terms();
  if (terms.size() != 1) return size == other;
  return std::ranges::all_of(terms.front().factors, [&](const SymExpr& factor) {
    const auto own = size.terms();
    return std::ranges::all_of(own,
                               [&](const SymExpr::Term& term) { return std::ranges::count(term.factors, factor); });
  });
}

/// Whether a size that is asked for is that of the result, whatever it is at a run: 0 may stand for that of the tensor
/// itself, and -1 for what the others leave.
bool is_as_asked(const SymExpr& size, const std::optional<Shape>& data, std::size_t axis, bool copies) {
  if (size.is_constant() || is_at_least(size, 1)) return true;
  if (!is_at_least(size, 0)) return false;
  return !copies || (data && (axis >= data->size() || is_zero_where(size, (*data)[axis])));
}

void infer_reshape(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  auto sizes = ctx.elements(1);
  if (!sizes) {
    const auto rank = ctx.count_of_sizes(1);
    return ctx.set(0, ctx.dtype(0), rank ? std::optional(ctx.fresh_shape(*rank)) : std::nullopt);
  }

  const bool copies = ctx.integer("allowzero", 0) == 0;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    if (!is_as_asked((*sizes)[i], data, i, copies)) (*sizes)[i] = ctx.fresh();
    if ((*sizes)[i].constant() != 0 || !copies) continue;
    if (data && i >= data->size())
      ctx.fail(fmt::format("size {} is 0 (copied), but the tensor has rank {}", i, data->size()));
    (*sizes)[i] = data ? (*data)[i] : ctx.fresh();
  }

  const auto inferred = std::ranges::find_if(*sizes, [](const Dim& size) { return size.constant() == -1; });
  if (inferred != sizes->end()) {
    *inferred = remaining(ctx, data, *sizes);
  } else if (data && product(*data).is_constant() && product(*sizes).is_constant() &&
             product(*data) != product(*sizes)) {
    ctx.fail(fmt::format("{} elements cannot become {}", product(*data).str(), product(*sizes).str()));
  }

  ctx.set(0, ctx.dtype(0), std::move(*sizes));
  if (const auto elements = ctx.elements(0); elements && ctx.count_of_sizes(1).value_or(2) <= 1)
    ctx.set_elements(*elements);
}

void infer_flatten(InferenceContext& ctx) {
  const auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(0), ctx.fresh_shape(2));
  const auto count = static_cast<std::int64_t>(shape->size());
  std::int64_t axis = ctx.integer("axis", 1);
  if (axis < -count || axis > count)
    ctx.fail(fmt::format("axis must be between {} and {}, got {}", -count, count, axis));
  if (axis < 0) axis += count;
  const auto middle = shape->begin() + axis;
  ctx.set(0, ctx.dtype(0), Shape{product(Shape(shape->begin(), middle)), product(Shape(middle, shape->end()))});
}

/// Axes are an operand since opset 13, as those of Unsqueeze are.
void infer_squeeze(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const bool has_axes = has_either(ctx, 1, "axes");
  const auto given = either(ctx, 1, "axes");
  if (has_axes && !given) shape = std::nullopt;
  if (!has_axes && shape && !std::ranges::all_of(*shape, [](const Dim& dim) { return dim.is_constant(); })) {
    shape = std::nullopt;  // what is squeezed depends on the sizes
  }
  if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);

  if (has_axes) {
    const auto axes = ctx.axes(*given, shape->size());
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const auto size = (*shape)[*axis].constant();
      if (size && *size != 1) ctx.fail(fmt::format("axis {} must have size 1, got {}", *axis, *size));
      shape->erase(shape->begin() + static_cast<std::ptrdiff_t>(*axis));
    }
  } else {
    std::erase(*shape, Dim(1));
  }

  ctx.set(0, ctx.dtype(0), std::move(shape));
  if (const auto elements = ctx.elements(0)) ctx.set_elements(*elements);
}

void infer_unsqueeze(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const auto axes = either(ctx, 1, "axes");
  if (!shape || !axes) return ctx.set(0, ctx.dtype(0), std::nullopt);
  for (const std::size_t axis : ctx.axes(*axes, shape->size() + axes->size())) {
    shape->insert(shape->begin() + static_cast<std::ptrdiff_t>(axis), Dim(1));
  }
  const bool is_vector = shape->size() <= 1;
  ctx.set(0, ctx.dtype(0), std::move(shape));
  if (const auto elements = ctx.elements(0); elements && is_vector) ctx.set_elements(*elements);
}

void infer_transpose(InferenceContext& ctx) {
  const auto shape = ctx.shape(0);
  const auto* permutation = ctx.find_integers("perm");
  if (!shape) {
    return ctx.set(0, ctx.dtype(0), permutation ? std::optional(ctx.fresh_shape(permutation->size())) : std::nullopt);
  }
  if (permutation == nullptr) return ctx.set(0, ctx.dtype(0), Shape(shape->rbegin(), shape->rend()));
  if (permutation->size() != shape->size()) {
    ctx.fail(fmt::format("perm must have {} entries, got {}", shape->size(), permutation->size()));
  }
  ctx.axes(*permutation, shape->size());

  Shape result;
  for (const std::int64_t axis : *permutation) {
    if (axis < 0) ctx.fail(fmt::format("perm has no axes from the end, got {}", axis));
    result.push_back((*shape)[static_cast<std::size_t>(axis)]);
  }
  ctx.set(0, ctx.dtype(0), std::move(result));
}

void infer_expand(InferenceContext& ctx) {
  const auto data = ctx.shape(0);
  const auto sizes = ctx.elements(1);
  if (data && sizes) return ctx.set(0, ctx.dtype(0), ctx.broadcast(*data, *sizes));
  const auto rank = ctx.count_of_sizes(1);
  const bool is_known = data && rank;
  ctx.set(0, ctx.dtype(0), is_known ? std::optional(ctx.fresh_shape(std::max(*rank, data->size()))) : std::nullopt);
}

void infer_tile(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const auto repeats = ctx.elements(1);
  if (!shape) {
    const auto rank = ctx.count_of_sizes(1);
    return ctx.set(0, ctx.dtype(0), rank ? std::optional(ctx.fresh_shape(*rank)) : std::nullopt);
  }
  if (repeats && repeats->size() != shape->size()) {
    ctx.fail(fmt::format("repeats must have {} entries, got {}", shape->size(), repeats->size()));
  }
  for (std::size_t i = 0; i < shape->size(); ++i) (*shape)[i] = repeats ? (*shape)[i] * (*repeats)[i] : ctx.fresh();
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

// ------------------------------------------------------------------------------------------------ joining and cutting

/// The elements of all operands one after the other.
std::optional<Elements> joined_elements(const InferenceContext& ctx) {
  Elements all;
  for (std::size_t i = 0; i < ctx.input_count(); ++i) {
    const auto part = ctx.elements(i);
    if (!part || ctx.rank(i) != 1U) return std::nullopt;
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

void infer_concat(InferenceContext& ctx) {
  std::optional<Shape> result;
  std::optional<std::size_t> axis;
  bool has_all = true;

  for (std::size_t i = 0; i < ctx.input_count(); ++i) {
    const auto shape = ctx.shape(i);
    has_all = has_all && shape.has_value();
    if (!shape) continue;
    if (!result) {
      axis = ctx.axis(ctx.integer("axis", 0), shape->size());
      result = shape;
      continue;
    }
    if (shape->size() != result->size()) {
      ctx.fail(fmt::format("operand {} must have rank {}, got {}", i, result->size(), shape->size()));
    }
    for (std::size_t k = 0; k < shape->size(); ++k) {
      (*result)[k] = k == *axis ? (*result)[k] + (*shape)[k] : ctx.same((*result)[k], (*shape)[k]);
    }
  }

  if (result && !has_all) (*result)[*axis] = ctx.fresh();
  ctx.set(0, ctx.dtype(0), std::move(result));
  if (auto elements = joined_elements(ctx)) ctx.set_elements(std::move(*elements));
}

/// Sizes of the pieces are an operand since opset 13.
std::optional<Elements> split_sizes(const InferenceContext& ctx) {
  const auto* given = ctx.find_integers("split");
  return given != nullptr ? std::optional(Elements(given->begin(), given->end())) : ctx.elements(1);
}

void infer_split(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  const auto count = static_cast<std::int64_t>(ctx.output_count());
  const auto sizes = split_sizes(ctx);
  if (!shape) {
    for (std::size_t i = 0; i < ctx.output_count(); ++i) ctx.set(i, ctx.dtype(0), std::nullopt);
    return;
  }

  const std::size_t axis = ctx.axis(ctx.integer("axis", 0), shape->size());
  const Dim whole = (*shape)[axis];
  if (sizes && sizes->size() != ctx.output_count()) {
    ctx.fail(fmt::format("split must have {} entries, one for each output, got {}", count, sizes->size()));
  }

  // Pieces of equal size; the last one is smaller if that leaves a rest.
  const Dim piece = count == 1 ? whole : floor_div(whole + (count - 1), count);
  for (std::size_t i = 0; i < ctx.output_count(); ++i) {
    const bool is_last = i + 1 == ctx.output_count();
    (*shape)[axis] = is_last ? whole - piece * (count - 1) : piece;
    if (has_either(ctx, 1, "split")) (*shape)[axis] = sizes ? (*sizes)[i] : ctx.fresh();
    const auto number = (*shape)[axis].constant();
    if (number && *number < 0) ctx.fail(fmt::format("{} rows cannot be cut into {} pieces", whole.str(), count));
    ctx.set(i, ctx.dtype(0), shape);
  }
}

/// Sizes of `[start:end:step]` of an axis; nothing if the symbols do not tell.
std::optional<Dim> sliced_size(const Dim& size, const SymExpr& start, const SymExpr& end, std::int64_t step) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int32_t>::max();
  const auto count = size.constant();
  const auto first = start.constant();
  const auto last = end.constant();

  if (step < 0 && last && *last >= kFar) return std::nullopt;  // none for ONNX, and all for onnxruntime
  if (count && *count >= 0 && first && last) {
    const std::int64_t low = step > 0 ? 0 : -1;
    const std::int64_t high = step > 0 ? *count : *count - 1;
    const auto placed = [&](std::int64_t position) {
      return std::clamp<std::int64_t>(position < 0 ? position + *count : position, low, high);
    };
    if (*count == 0) return Dim(0);
    const std::int64_t from = std::clamp<std::int64_t>(*first < 0 ? *first + *count : *first, 0, high);
    const std::int64_t width = step > 0 ? placed(*last) - from : from - placed(*last);
    const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
    if (width <= 0 || stride == 0) return Dim(0);
    return Dim(static_cast<std::int64_t>((static_cast<std::uint64_t>(width) - 1) / stride + 1));
  }

  if (step != 1 || !first) return std::nullopt;
  const bool to_the_end = (last && *last >= kFar) || end == size;
  if (to_the_end && *first >= 0) return *first == 0 ? size : max(SymExpr(0), size - *first);
  const bool is_least = *first == std::numeric_limits<std::int64_t>::min();  // which has no counterpart
  if (to_the_end) return is_least ? size : min(SymExpr(-*first), size);
  const bool is_front = *first == 0 && last && *last >= 0;
  return is_front ? std::optional(min(SymExpr(*last), size)) : std::nullopt;
}

struct SliceBounds {
  Elements starts;
  Elements ends;
  std::vector<std::int64_t> axes;
  std::vector<std::int64_t> steps;
};

std::optional<SliceBounds> slice_bounds(const InferenceContext& ctx) {
  const auto starts = ctx.elements(1);
  const auto ends = ctx.elements(2);
  if (!starts || !ends || starts->size() != ends->size()) return std::nullopt;
  SliceBounds bounds{*starts, *ends, {}, std::vector<std::int64_t>(starts->size(), 1)};
  for (std::size_t i = 0; i < starts->size(); ++i) bounds.axes.push_back(static_cast<std::int64_t>(i));
  if (ctx.has(3)) {
    const auto axes = ctx.integers(3);
    if (!axes || axes->size() != starts->size()) return std::nullopt;
    bounds.axes = *axes;
  }
  if (ctx.has(4)) {
    const auto steps = ctx.integers(4);
    if (!steps || steps->size() != starts->size()) return std::nullopt;
    bounds.steps = *steps;
  }
  if (std::ranges::find(bounds.steps, 0) != bounds.steps.end()) ctx.fail("steps must not be 0");
  return bounds;
}

/// Part of a list of sizes.
void slice_elements(InferenceContext& ctx, const SliceBounds& bounds) {
  const auto elements = ctx.elements(0);
  const bool is_plain = elements && ctx.rank(0) == 1U && bounds.starts.size() == 1 && bounds.steps.front() > 0;
  if (!is_plain || !bounds.starts.front().is_constant() || !bounds.ends.front().is_constant()) return;
  const auto count = static_cast<std::int64_t>(elements->size());
  const std::int64_t end = clamped(*bounds.ends.front().constant(), count);
  Elements part;
  for (std::int64_t i = clamped(*bounds.starts.front().constant(), count); i < end; i += bounds.steps.front()) {
    part.push_back((*elements)[static_cast<std::size_t>(i)]);
  }
  ctx.set_elements(std::move(part));
}

void infer_slice(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);

  const auto bounds = slice_bounds(ctx);
  if (!bounds) {
    // Known axes leave the others as they are.
    const auto axes = ctx.integers(3);
    for (std::size_t i = 0; i < shape->size() && !axes; ++i) (*shape)[i] = ctx.fresh();
    for (const std::int64_t axis : axes.value_or(std::vector<std::int64_t>{})) {
      (*shape)[ctx.axis(axis, shape->size())] = ctx.fresh();
    }
    return ctx.set(0, ctx.dtype(0), std::move(shape));
  }

  for (std::size_t i = 0; i < bounds->axes.size(); ++i) {
    Dim& size = (*shape)[ctx.axis(bounds->axes[i], shape->size())];
    size = sliced_size(size, bounds->starts[i], bounds->ends[i], bounds->steps[i]).value_or(ctx.fresh());
  }
  ctx.set(0, ctx.dtype(0), std::move(shape));
  slice_elements(ctx, *bounds);
}

void infer_pad(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);
  const auto pads = ctx.elements(1);
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < shape->size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  const auto given = ctx.integers(3);
  if (given) axes = *given;
  const bool is_known = pads && (!ctx.has(3) || given);
  if (is_known && pads->size() != 2 * axes.size()) {
    ctx.fail(fmt::format("pads must have {} entries, got {}", 2 * axes.size(), pads->size()));
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Dim& size = (*shape)[ctx.axis(axes[i], shape->size())];
    size = is_known ? size + (*pads)[i] + (*pads)[i + axes.size()] : ctx.fresh();
  }
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

void infer_center_crop_pad(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);
  const auto sizes = ctx.elements(1);
  const auto* axes = ctx.find_integers("axes");
  const std::size_t count = axes ? axes->size() : shape->size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t axis = axes ? ctx.axis((*axes)[i], shape->size()) : i;
    (*shape)[axis] = sizes && i < sizes->size() ? (*sizes)[i] : ctx.fresh();
  }
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

// ------------------------------------------------------------------------------------------------ blocks

/// A block whose square is a number of 64 bits.
std::int64_t block_size(const InferenceContext& ctx) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t block = ctx.integer("blocksize", 1);
  if (block < 1 || block > kMost)
    ctx.fail(fmt::format("blocksize must be at least 1 and at most {}, got {}", kMost, block));
  return block;
}

void infer_depth_to_space(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape || shape->size() != 4) return ctx.set(0, ctx.dtype(0), ctx.fresh_shape(4));
  const std::int64_t block = block_size(ctx);
  (*shape)[1] = floor_div((*shape)[1], block * block);
  (*shape)[2] = (*shape)[2] * block;
  (*shape)[3] = (*shape)[3] * block;
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

void infer_space_to_depth(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (!shape || shape->size() != 4) return ctx.set(0, ctx.dtype(0), ctx.fresh_shape(4));
  const std::int64_t block = block_size(ctx);
  (*shape)[1] = (*shape)[1] * (block * block);
  (*shape)[2] = floor_div((*shape)[2], block);
  (*shape)[3] = floor_div((*shape)[3], block);
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

void infer_same_shape(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), ctx.shape(0)); }

}  // namespace

void populate_shaping(InferenceTable& table) {
  table.add({"Shape"}, infer_shape);
  table.add({"Size"}, infer_size);
  table.add({"Reshape"}, infer_reshape);
  table.add({"Flatten"}, infer_flatten);
  table.add({"Squeeze"}, infer_squeeze);
  table.add({"Unsqueeze"}, infer_unsqueeze);
  table.add({"Transpose"}, infer_transpose);
  table.add({"Expand"}, infer_expand);
  table.add({"Tile"}, infer_tile);
  table.add({"Concat"}, infer_concat);
  table.add({"Split"}, infer_split);
  table.add({"Slice"}, infer_slice);
  table.add({"Pad"}, infer_pad);
  table.add({"CenterCropPad"}, infer_center_crop_pad);
  table.add({"DepthToSpace"}, infer_depth_to_space);
  table.add({"SpaceToDepth"}, infer_space_to_depth);
  table.add({"Trilu", "ReverseSequence"}, infer_same_shape);
}

}  // namespace exportguard::ir
