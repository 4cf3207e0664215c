// Sequences and optionals.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "evaluator/call.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

void run_construct(Call& call) {
  Data items;
  for (std::size_t i = 0; i < call.input_count(); ++i) items.push_back(call.datum(i));
  call.result(Datum::sequence(std::move(items)));
}

void run_empty(Call& call) { call.result(Datum::sequence({})); }

void run_length(Call& call) {
  const auto count = static_cast<std::int64_t>(call.sequence(0).size());
  call.result(at::full({}, count, at::TensorOptions(at::kLong).device(call.device())));
}

std::ptrdiff_t place(const Call& call, std::size_t size, std::int64_t position) {
  return static_cast<std::ptrdiff_t>(call.axis(position, static_cast<std::int64_t>(size)));
}

void run_at(Call& call) {
  const auto& items = call.sequence(0);
  call.result(items[static_cast<std::size_t>(place(call, items.size(), call.integer(1)))]);
}

void run_insert(Call& call) {
  Data items = call.sequence(0);
  const auto count = static_cast<std::int64_t>(items.size());
  std::int64_t position = call.has(2) ? call.integer(2) : count;
  if (position != count) position = place(call, items.size(), position);
  items.insert(items.begin() + position, call.datum(1));
  call.result(Datum::sequence(std::move(items)));
}

void run_erase(Call& call) {
  Data items = call.sequence(0);
  items.erase(items.begin() + place(call, items.size(), call.has(1) ? call.integer(1) : -1));
  call.result(Datum::sequence(std::move(items)));
}

// Pieces of one size, or of the sizes given; with pieces of size 1 the axis itself may go.
void run_split_to_sequence(Call& call) {
  const Tensor& x = call.input(0);
  const std::int64_t axis = call.axis(call.integer("axis", 0), x.dim());

  std::vector<std::int64_t> sizes;
  if (call.has(1) && call.input(1).dim() > 0) {
    sizes = call.ints(1);
  } else {
    const std::int64_t step = call.has(1) ? call.integer(1) : 1;
    call.require(step > 0, "pieces must have a positive size");
    for (std::int64_t done = 0; done < x.size(axis); done += step) sizes.push_back(std::min(step, x.size(axis) - done));
  }

  const bool drops_axis = !call.has(1) && !call.flag("keepdims", true);
  Data items;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    const Tensor part = x.narrow(axis, start, size);
    items.push_back(Datum::of(drops_axis ? part.squeeze(axis) : part, call.dtype(0)));
    start += size;
  }
  call.result(Datum::sequence(std::move(items)));
}

void run_concat_from_sequence(Call& call) {
  const auto& items = call.sequence(0);
  call.require(!items.empty(), "its sequence is empty");
  std::vector<Tensor> parts;
  for (const Datum& item : items) {
    call.require(item.is_tensor(), "its items must be tensors");
    parts.push_back(as_bits(item.tensor));
  }
  const std::int64_t axis = call.integer("axis");
  const Tensor joined = call.flag("new_axis") ? at::stack(parts, axis) : at::cat(parts, axis);
  call.result(joined.view(items.front().tensor.scalar_type()), items.front().dtype);
}

void run_sequence_map(Call& call) {
  const std::size_t length = call.sequence(0).size();
  std::vector<Data> outputs(call.output_count());
  for (std::size_t i = 0; i < length; ++i) {
    Data inputs;
    for (std::size_t k = 0; k < call.input_count(); ++k) {
      const Datum& given = call.datum(k);
      const bool is_sequence = given.items != nullptr;
      call.require(!is_sequence || given.items->size() == length, "its sequences must be as long as the first");
      inputs.push_back(is_sequence ? (*given.items)[i] : given);
    }
    Data results = call.run_body("body", std::move(inputs));
    for (std::size_t k = 0; k < outputs.size() && k < results.size(); ++k) outputs[k].push_back(std::move(results[k]));
  }
  for (Data& items : outputs) call.result(Datum::sequence(std::move(items)));
}

// ---------------------------------------------------------------- optionals

void run_optional(Call& call) { call.result(call.input_count() > 0 ? call.datum(0) : Datum()); }

void run_has_element(Call& call) {
  call.result(at::full({}, call.has(0), at::TensorOptions(at::kBool).device(call.device())));
}

void run_get_element(Call& call) {
  call.require(call.has(0), "the optional is empty");
  call.result(call.datum(0));
}

}  // namespace

void populate_sequence(OperatorTable& table) {
  table.add("SequenceConstruct", run_construct);
  table.add("SequenceEmpty", run_empty);
  table.add("SequenceLength", run_length);
  table.add("SequenceAt", run_at);
  table.add("SequenceInsert", run_insert);
  table.add("SequenceErase", run_erase);
  table.add("SplitToSequence", run_split_to_sequence);
  table.add("ConcatFromSequence", run_concat_from_sequence);
  table.add("SequenceMap", run_sequence_map);
  table.add("Optional", run_optional);
  table.add("OptionalHasElement", run_has_element);
  table.add("OptionalGetElement", run_get_element);
}

}  // namespace exportguard::evaluator
