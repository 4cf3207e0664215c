// Shapes: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, Identity, and what moves blocks.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

void move(Call& call, const Tensor& tensor) { call.result(tensor, call.dtype(0)); }

Tensor numbers(const Call& call, Sizes values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return at::from_blob(values.data(), {count}, at::kLong).clone().to(call.device());
}

std::int64_t clamped(std::int64_t position, std::int64_t rank) {
  return std::clamp<std::int64_t>(position < 0 ? position + rank : position, 0, rank);
}

void run_shape(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t start = clamped(call.integer("start", 0), x.dim());
  const std::int64_t end = clamped(call.integer("end", x.dim()), x.dim());
  Sizes sizes;
  for (std::int64_t i = start; i < end; ++i) sizes.push_back(x.size(i));
  call.result(numbers(call, std::move(sizes)));
}

void run_size(Call& call) {
  call.result(at::full({}, call.input(0).numel(), at::TensorOptions(at::kLong).device(call.device())));
}

void run_identity(Call& call) { call.result(call.datum(0)); }

// 0 copies the size at that place unless `allowzero`.
void run_reshape(Call& call) {
  const Tensor& x = call.input(0);
  Sizes sizes = call.find_integers("shape", 1).value_or(Sizes{});
  if (!call.flag("allowzero")) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != 0) continue;
      call.require(static_cast<std::int64_t>(i) < x.dim(), "a size of 0 copies one that the input does not have");
      sizes[i] = x.size(static_cast<std::int64_t>(i));
    }
  }
  move(call, x.reshape(sizes));
}

std::int64_t product(const Tensor& x, std::int64_t from, std::int64_t to) {
  std::int64_t result = 1;
  for (std::int64_t i = from; i < to; ++i) result *= x.size(i);
  return result;
}

void run_flatten(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t given = call.integer("axis", 1);
  const std::int64_t axis = given == x.dim() ? given : call.axis(given, x.dim());
  move(call, x.reshape({product(x, 0, axis), product(x, axis, x.dim())}));
}

void run_squeeze(Call& call) {
  const Tensor& x = call.input(0);
  const auto axes = call.find_integers("axes", 1);
  if (!axes) return move(call, x.squeeze());
  const Sizes dims = call.axes(*axes, x.dim());
  for (const std::int64_t dim : dims) call.require(x.size(dim) == 1, "only axes of size 1 can be squeezed");
  move(call, x.squeeze(dims));
}

void run_unsqueeze(Call& call) {
  Tensor x = call.input(0);
  const Sizes given = call.find_integers("axes", 1).value_or(Sizes{});
  Sizes axes = call.axes(given, x.dim() + static_cast<std::int64_t>(given.size()));
  std::ranges::sort(axes);
  call.require(std::ranges::adjacent_find(axes) == axes.end(), "an axis is given twice");
  for (const std::int64_t axis : axes) x = x.unsqueeze(axis);
  move(call, x);
}

void run_transpose(Call& call) {
  const Tensor& x = call.input(0);
  Sizes order;
  for (std::int64_t i = x.dim(); i-- > 0;) order.push_back(i);
  move(call, x.permute(call.integers("perm", std::move(order))));
}

// Both ways: a size of 1 in the wanted shape keeps the input's.
void run_expand(Call& call) {
  const Tensor& x = call.input(0);
  Sizes sizes = call.ints(1);
  const auto rank = static_cast<std::int64_t>(sizes.size());
  if (rank < x.dim()) sizes.insert(sizes.begin(), static_cast<std::size_t>(x.dim() - rank), 1);
  const std::int64_t offset = static_cast<std::int64_t>(sizes.size()) - x.dim();
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    std::int64_t& size = sizes[static_cast<std::size_t>(i + offset)];
    if (size == 1) size = x.size(i);
  }
  call.require_room(sizes);  // a view of any size costs nothing until it is written, or looked at
  move(call, x.expand(sizes));
}

void run_tile(Call& call) {
  const Tensor& x = call.input(0);
  const Sizes repeats = call.ints(1);
  call.require(static_cast<std::int64_t>(repeats.size()) == x.dim(), "it needs one count for each axis");
  Sizes sizes;
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    std::int64_t size = 0;
    const bool is_large = __builtin_mul_overflow(x.size(static_cast<std::int64_t>(i)), repeats[i], &size);
    call.require(!is_large, "a result is too large");
    sizes.push_back(size);
  }
  call.require_room(sizes);
  move(call, moved(x, [&](const Tensor& bits) { return bits.repeat(repeats); }));
}

// ---------------------------------------------------------------- blocks

std::int64_t times(const Call& call, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  const bool is_large = __builtin_mul_overflow(a, b, &product);
  call.require(!is_large, "a result is too large");
  return product;
}

// Its square is a size.
std::int64_t block_size(const Call& call) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t block = call.integer("blocksize");
  call.require(block > 0 && block <= kMost, "blocksize must be positive, and no larger than an axis can be");
  return block;
}

void run_depth_to_space(Call& call) {
  const Tensor& x = call.input(0);
  call.require(x.dim() == 4, "its input must have rank 4");
  const std::int64_t block = block_size(call);
  call.require(x.size(1) % (block * block) == 0, "its channels are no multiple of the square of blocksize");
  const std::int64_t depth = x.size(1) / (block * block);
  const bool is_dcr = call.text("mode", "DCR") == "DCR";
  const Tensor split =
      is_dcr ? x.reshape({x.size(0), block, block, depth, x.size(2), x.size(3)}).permute({0, 3, 4, 1, 5, 2})
             : x.reshape({x.size(0), depth, block, block, x.size(2), x.size(3)}).permute({0, 1, 4, 2, 5, 3});
  move(call, split.reshape({x.size(0), depth, times(call, x.size(2), block), times(call, x.size(3), block)}));
}

void run_space_to_depth(Call& call) {
  const Tensor& x = call.input(0);
  call.require(x.dim() == 4, "its input must have rank 4");
  const std::int64_t block = block_size(call);
  call.require(x.size(2) % block == 0 && x.size(3) % block == 0, "its sizes are no multiple of blocksize");
  const std::int64_t height = x.size(2) / block;
  const std::int64_t width = x.size(3) / block;
  const Tensor split = x.reshape({x.size(0), x.size(1), height, block, width, block});
  const bool is_dcr = call.text("mode", "DCR") == "DCR";
  const Tensor ordered = is_dcr ? split.permute({0, 3, 5, 1, 2, 4}) : split.permute({0, 1, 3, 5, 2, 4});
  move(call, ordered.reshape({x.size(0), times(call, x.size(1), block * block), height, width}));
}

}  // namespace

void populate_shape(OperatorTable& table) {
  table.add("Shape", run_shape);
  table.add("Size", run_size);
  table.add("Identity", run_identity);
  table.add("exportguard::DefaultInput", run_identity);
  table.add("Reshape", run_reshape);
  table.add("Flatten", run_flatten);
  table.add("Squeeze", run_squeeze);
  table.add("Unsqueeze", run_unsqueeze);
  table.add("Transpose", run_transpose);
  table.add("Expand", run_expand);
  table.add("Tile", run_tile);
  table.add("DepthToSpace", run_depth_to_space);
  table.add("SpaceToDepth", run_space_to_depth);
}

}  // namespace exportguard::evaluator
