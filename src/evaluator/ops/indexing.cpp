// Gathering and scattering. Negative indices count from the end; one that is out of range is an error.
#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

Tensor from_front(const Call& call, const Tensor& indices, std::int64_t size) {
  const Tensor wide = indices.to(at::kLong);
  if (wide.numel() == 0) return wide;
  const bool is_inside = wide.min().item<std::int64_t>() >= -size && wide.max().item<std::int64_t>() < size;
  call.require(is_inside, "an index is out of range");
  return at::where(wide.lt(0), wide.add(size), wide);
}

void run_gather(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer("axis", 0), x.dim());
  const Tensor indices = from_front(call, call.input(1), x.size(axis));
  Sizes sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + axis);
  sizes.insert(sizes.begin() + axis, indices.sizes().begin(), indices.sizes().end());
  call.require_room(sizes);
  call.result(
      moved(x, [&](const Tensor& bits) { return bits.index_select(axis, indices.reshape({-1})).reshape(sizes); }),
      call.dtype(0));
}

void run_gather_elements(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer("axis", 0), x.dim());
  const Tensor indices = from_front(call, call.input(1), x.size(axis));
  call.result(moved(x, [&](const Tensor& bits) { return bits.gather(axis, indices); }), call.dtype(0));
}

// Rows of coordinates as positions in the first `rank` axes, taken as one.
Tensor positions(const Call& call, const Tensor& rows, at::IntArrayRef sizes) {
  const std::int64_t count = rows.size(-1);
  Tensor result = at::zeros_like(rows.select(-1, 0), at::kLong);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t size = sizes[static_cast<std::size_t>(k)];
    result = result.mul(size).add(from_front(call, rows.select(-1, k), size));
  }
  return result;
}

void run_gather_nd(Call& call) {
  const Tensor& x = call.input(0);
  const Tensor& rows = call.input(1);
  const std::int64_t batch = call.integer("batch_dims", 0);
  call.require(rows.dim() > batch && batch >= 0 && x.dim() > batch, "batch_dims is not below both ranks");
  const std::int64_t depth = rows.size(-1);
  call.require(depth > 0 && batch + depth <= x.dim(), "its indices have more coordinates than the input axes");
  for (std::int64_t i = 0; i < batch; ++i) call.require(x.size(i) == rows.size(i), "the batches differ");

  const Tensor places = positions(call, rows, x.sizes().slice(static_cast<std::size_t>(batch)));
  std::int64_t batches = 1;
  for (std::int64_t i = 0; i < batch; ++i) batches *= x.size(i);
  std::int64_t spread = 1;
  for (std::int64_t i = batch; i < batch + depth; ++i) spread *= x.size(i);
  Sizes rest(x.sizes().begin() + batch + depth, x.sizes().end());
  Sizes table{batches * spread};
  table.insert(table.end(), rest.begin(), rest.end());
  const Tensor offsets = at::arange(batches, places.options()).mul(spread);
  const Tensor flat = places.reshape({batches, batches == 0 ? 0 : places.numel() / batches}).add(offsets.unsqueeze(-1));
  Sizes sizes(rows.sizes().begin(), rows.sizes().end() - 1);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  call.result(
      moved(x,
            [&](const Tensor& bits) { return bits.reshape(table).index_select(0, flat.reshape({-1})).reshape(sizes); }),
      call.dtype(0));
}

// ---------------------------------------------------------------- scattering

std::string torch_name(const Call& call, const std::string& reduction) {
  if (reduction == "add") return "sum";
  if (reduction == "mul") return "prod";
  if (reduction == "max") return "amax";
  if (reduction == "min") return "amin";
  call.fail("reduction must be none, add, mul, max or min, got " + reduction);
}

bool has_order(const std::string& reduction) { return reduction == "max" || reduction == "min"; }

// Sums and products wrap, extremes go by the order of the numbers.
Tensor ordered_for(const std::string& reduction, const Tensor& x) {
  return has_order(reduction) ? ordered(x) : widened(x);
}

Tensor scattered(const Call& call, const Tensor& x, std::int64_t axis, const Tensor& indices, const Tensor& updates) {
  const std::string reduction = call.text("reduction", "none");
  if (reduction == "none") {
    return moved(x, [&](const Tensor& bits) { return bits.scatter(axis, indices, as_bits(updates)); });
  }
  const Tensor result =
      ordered_for(reduction, x)
          .scatter_reduce(axis, indices, ordered_for(reduction, updates), torch_name(call, reduction), true);
  return has_order(reduction) ? from_ordered(result, x.scalar_type()) : narrowed(result, x.scalar_type());
}

void run_scatter_elements(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer("axis", 0), x.dim());
  const Tensor indices = from_front(call, call.input(1), x.size(axis));
  const Tensor& updates = call.input(2);
  call.require(indices.sizes() == updates.sizes(), "indices and updates must have the same sizes");
  call.result(scattered(call, x, axis, indices, updates), call.dtype(0));
}

void run_scatter_nd(Call& call) {
  const Tensor& x = call.input(0);
  const Tensor& rows = call.input(1);
  call.require(rows.dim() > 0 && rows.size(-1) > 0 && rows.size(-1) <= x.dim(), "indices have too many coordinates");
  const std::int64_t depth = rows.size(-1);
  const Tensor places = positions(call, rows, x.sizes()).reshape({-1});
  Sizes table{1};
  for (std::int64_t i = 0; i < depth; ++i) table[0] *= x.size(i);
  table.push_back(1);
  for (std::int64_t i = depth; i < x.dim(); ++i) table[1] *= x.size(i);
  const Tensor updates = call.input(2).reshape({places.numel(), table[1]});
  const Tensor indices = places.unsqueeze(-1).expand({places.numel(), table[1]});
  call.result(scattered(call, x.reshape(table), 0, indices, updates).reshape(x.sizes()), call.dtype(0));
}

// Writes `update` into a cache from a position for each batch on; circular caches go on at the start.
void run_tensor_scatter(Call& call) {
  const Tensor& past = call.input(0);
  const Tensor update = as_bits(call.input(1));
  const std::int64_t axis = call.axis(call.integer("axis", -2), past.dim());
  call.require(axis > 0 && update.dim() == past.dim(), "axis must not be that of the batch");
  const std::int64_t batch = past.size(0);
  const std::int64_t length = update.size(axis);
  const auto options = at::TensorOptions(at::kLong).device(past.device());
  const Tensor starts = call.has(2) ? call.input(2).to(at::kLong) : at::arange(batch, options).mul(0);
  Tensor places = starts.unsqueeze(-1).add(at::arange(length, options));
  const bool is_circular = call.text("mode", "linear") == "circular";
  if (is_circular) places = places.remainder(past.size(axis));
  places = from_front(call, places, past.size(axis));
  Sizes view(static_cast<std::size_t>(past.dim()), 1);
  view.front() = batch;
  view[static_cast<std::size_t>(axis)] = length;
  const Tensor indices = places.reshape(view).expand(update.sizes());
  call.result(moved(past, [&](const Tensor& bits) { return bits.scatter(axis, indices, update); }), call.dtype(0));
}

void run_where(Call& call) {
  const Tensor& x = call.input(1);
  call.result(at::where(call.input(0), as_bits(x), as_bits(call.input(2))).view(x.scalar_type()), call.dtype(1));
}

void run_compress(Call& call) {
  Tensor x = as_bits(call.input(0));
  const auto given = call.find_integer("axis");
  if (!given) x = x.reshape({-1});
  const std::int64_t axis = given ? call.axis(*given, x.dim()) : 0;
  const Tensor kept = call.input(1).nonzero().reshape({-1});
  call.result(x.index_select(axis, kept).view(call.input(0).scalar_type()), call.dtype(0));
}

void run_nonzero(Call& call) {
  const Tensor x = as_bits(call.input(0));
  if (x.dim() == 0) return call.result(x.reshape({1}).nonzero().narrow(1, 0, 0).t());  // a scalar has no coordinates
  call.result(x.nonzero().t());
}

// Reverses the first elements of each sequence, as many as its length says.
void run_reverse_sequence(Call& call) {
  const Tensor x = as_bits(call.input(0));
  const std::int64_t batch_axis = call.axis(call.integer("batch_axis", 1), x.dim());
  const std::int64_t time_axis = call.axis(call.integer("time_axis", 0), x.dim());
  const auto options = at::TensorOptions(at::kLong).device(x.device());
  const Tensor lengths = call.input(1).to(at::kLong).unsqueeze(-1);
  const Tensor times = at::arange(x.size(time_axis), options);
  Tensor sources = at::where(times.lt(lengths), lengths.sub(1).sub(times), times);  // [batch, time]
  Sizes view(static_cast<std::size_t>(x.dim()), 1);
  view[static_cast<std::size_t>(batch_axis)] = x.size(batch_axis);
  view[static_cast<std::size_t>(time_axis)] = x.size(time_axis);
  if (time_axis < batch_axis) sources = sources.t();
  const Tensor indices = from_front(call, sources.reshape(view), x.size(time_axis)).expand(x.sizes());
  call.result(x.gather(time_axis, indices).view(call.input(0).scalar_type()), call.dtype(0));
}

}  // namespace

void populate_indexing(OperatorTable& table) {
  table.add("Gather", run_gather);
  table.add("GatherElements", run_gather_elements);
  table.add("GatherND", run_gather_nd);
  table.add({"ScatterElements", "Scatter"}, run_scatter_elements);
  table.add("ScatterND", run_scatter_nd);
  table.add("TensorScatter", run_tensor_scatter);
  table.add("Where", run_where);
  table.add("Compress", run_compress);
  table.add("NonZero", run_nonzero);
  table.add("ReverseSequence", run_reverse_sequence);
}

}  // namespace exportguard::evaluator
