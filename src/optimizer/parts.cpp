#include "optimizer/parts.h"

#include <algorithm>
#include <limits>

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

std::optional<Part> part_of_slice(const Facts& facts, const ir::Node& slice) {
  const auto start = facts.ints(slice.find_input(1));
  const auto end = facts.ints(slice.find_input(2));
  const auto axes = facts.ints(slice.find_input(3));
  const auto steps = facts.ints(slice.find_input(4));
  const bool is_single = start && end && axes && start->size() == 1 && end->size() == 1 && axes->size() == 1;
  if (!is_single || (slice.find_input(4) && !steps)) return std::nullopt;
  Value& from = slice.input(0);
  const auto axis = axis_from_start(from, axes->front());
  const auto size = axis ? dim(from, *axis)->constant() : std::nullopt;
  const std::int64_t step = steps ? steps->front() : 1;
  if (!size || step < 1) return std::nullopt;
  const auto clamped = [&](std::int64_t i) {
    return i == kEnd ? *size : std::clamp<std::int64_t>(i < 0 ? i + *size : i, 0, *size);
  };
  return Part{&from, *axis, clamped(start->front()), clamped(end->front()), step, *size};
}

std::optional<Part> part_of_split(const Facts& facts, const Value& value) {
  const ir::Node& split = *value.producer();
  Value& from = split.input(0);
  const auto axis = axis_from_start(from, int_attribute(split, "axis", 0));
  const auto size = axis ? dim(from, *axis)->constant() : std::nullopt;
  if (!size) return std::nullopt;
  const auto given = facts.ints(split.find_input(1));
  Part part{&from, *axis, 0, 0, 1, *size};
  for (std::size_t i = 0; i <= value.output_index(); ++i) {
    const auto typed = dim(split.output(i), *axis);
    const auto count = given && i < given->size() ? std::optional((*given)[i])
                       : typed                    ? typed->constant()
                                                  : std::nullopt;
    if (!count) return std::nullopt;
    part.start = part.end;
    part.end += *count;
  }
  return part.end <= *size ? std::optional(part) : std::nullopt;
}

/// A list of one position.
std::optional<Part> part_of_gather(const Facts& facts, const ir::Node& gather) {
  const auto positions = facts.ints(gather.find_input(1));
  const bool is_single = positions && positions->size() == 1 && has_rank(gather.input(1), 1);
  Value& from = gather.input(0);
  const auto axis = axis_from_start(from, int_attribute(gather, "axis", 0));
  const auto size = axis ? dim(from, *axis)->constant() : std::nullopt;
  if (!is_single || !size) return std::nullopt;
  const std::int64_t at = positions->front() < 0 ? positions->front() + *size : positions->front();
  return at >= 0 && at < *size ? std::optional(Part{&from, *axis, at, at + 1, 1, *size}) : std::nullopt;
}

}  // namespace

std::optional<Part> part_of(const Facts& facts, const Value* value) {
  if (const ir::Node* slice = producer_of(value, "Slice")) return part_of_slice(facts, *slice);
  if (const ir::Node* gather = producer_of(value, "Gather")) return part_of_gather(facts, *gather);
  return producer_of(value, "Split") ? part_of_split(facts, *value) : std::nullopt;
}

}  // namespace exportguard::optimizer
