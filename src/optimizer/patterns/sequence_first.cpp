#include <algorithm>
#include <ranges>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/heads.h"

// torch.nn.MultiheadAttention computes with the sequence in front of the batch, whatever it is given: its operands are
// turned before the projections, each head becomes a sample of its own, and the result is turned back.

namespace exportguard::optimizer {
namespace {

constexpr std::size_t kMostSteps = 8;

/// The Transpose between [batch, sequence, …] and [sequence, batch, …] of three axes.
bool swaps_batch(const ir::Node* node) {
  static const std::vector<std::int64_t> kSwap = {1, 0, 2};
  const auto* permutation = node && node->is("", "Transpose") ? find_ints_attribute(*node, "perm") : nullptr;
  return permutation && *permutation == kSwap;
}

bool is_read_by_attention_alone(const Value& value) {
  const auto uses = value.uses();
  return !uses.empty() && std::ranges::all_of(uses, [](const ir::Use* use) { return use->user().is("", "Attention"); });
}

/// [sequence, batch, heads · size], as [sequence, batch · heads, size], turned, as [batch, heads, sequence, size].
Match match_heads(const Facts&, ir::Node& node) {
  const ir::Node* swap = producer_of(node.find_input(0), "Transpose");
  const ir::Node* split = swaps_batch(swap) ? producer_of(swap->find_input(0), "Reshape") : nullptr;
  if (split == nullptr) return Match::no("it is not of heads that stand beside the batch");
  const auto& shape = shape_of(node.output());
  const auto& turned = shape_of(swap->output());
  Value& x = split->input(0);
  const bool has_ranks = shape && turned && shape->size() == 4 && turned->size() == 3 && has_rank(x, 3);
  if (!has_ranks) return Match::no("it is not of heads that stand beside the batch");

  const ir::Dim &batch = (*shape)[0], &heads = (*shape)[1], &sequence = (*shape)[2], &size = (*shape)[3];
  if (heads.constant().value_or(0) < 1 || size.constant().value_or(0) < 1)
    return Match::no("the number of heads or their size is not known");
  const bool is_split =
      *turned == ir::Shape{batch * heads, sequence, size} && *shape_of(x) == ir::Shape{sequence, batch, heads * size};
  if (!is_split) return Match::no("the axes are taken apart in another way");
  if (!is_read_by_attention_alone(node.output())) return Match::no("something else than attention reads the heads");
  return Match([=, &node, &x](Rewriter& rewriter) {
    Value& behind = rewriter.reshape(rewriter.transpose(x, {1, 0, 2}), {batch, sequence, heads, size});
    rewriter.replace(node.output(), rewriter.transpose(behind, {0, 2, 1, 3}));
  });
}

// ------------------------------------------------------------------------------------------------ turned and back

bool is_row(const Value& value) { return value.type().rank().value_or(2) < 2; }

/// The operand whose rows the node computes with one by one; null if it does not.
Value* rows_of(const ir::Node& node) {
  static constexpr std::string_view kOfOne[] = {"Relu", "Gelu", "Sigmoid", "Tanh", "Neg", "Identity"};
  static constexpr std::string_view kOfTwo[] = {"Add", "Sub", "Mul", "Div"};
  if (!node.domain().empty() || node.output_count() != 1) return nullptr;
  if (std::ranges::find(kOfOne, node.op()) != std::end(kOfOne)) return node.find_input(0);
  if (node.op() == "MatMul") return has_rank(node.input(1), 2) ? node.find_input(0) : nullptr;
  if (std::ranges::find(kOfTwo, node.op()) == std::end(kOfTwo)) return nullptr;
  for (std::size_t i = 0; i < 2; ++i) {
    if (is_row(node.input(1 - i)) && same_shape(node.input(i), node.output())) return node.find_input(i);
  }
  return nullptr;
}

/// What is computed between two Transposes that undo each other.
struct Between {
  Value* x = nullptr;             ///< what the first one reads
  std::vector<ir::Node*> steps;   ///< the last one first
  std::vector<ir::Node*> turned;  ///< for each result of the last step the Transpose of it, null if nobody reads it
};

/// The Transposes that read the results of a Split of the last axis; nothing if something else does.
std::optional<std::vector<ir::Node*>> turned_parts(const ir::Node& split) {
  std::vector<ir::Node*> turned;
  for (std::size_t i = 0; i < split.output_count(); ++i) {
    const auto uses = split.output(i).uses();
    if (uses.size() > 1 || (!uses.empty() && !swaps_batch(&uses.front()->user()))) return std::nullopt;
    turned.push_back(uses.empty() ? nullptr : &uses.front()->user());
  }
  return turned;
}

/// The node's result is the operand of `outer`, which turns it back.
std::optional<Between> between(ir::Node& outer) {
  Between found{.x = nullptr, .steps = {}, .turned = {&outer}};
  Value* value = &outer.input(0);
  while (found.steps.size() <= kMostSteps) {
    ir::Node* node = value->producer();
    if (node == nullptr || &node->graph() != &outer.graph() || !has_rank(*value, 3)) return std::nullopt;
    const bool is_split = found.steps.empty() && node->is("", "Split") &&
                          axis_from_start(node->input(0), int_attribute(*node, "axis", 0)) == 2;
    if (!is_split && !has_one_use(*value) && !swaps_batch(node)) return std::nullopt;
    if (swaps_batch(node)) {
      found.x = &node->input(0);
      return shape_of(*found.x) ? std::optional(found) : std::nullopt;
    }
    if (is_split) {
      auto turned = turned_parts(*node);
      if (!turned) return std::nullopt;
      found.turned = std::move(*turned);
    }
    found.steps.push_back(node);
    value = is_split ? node->find_input(0) : rows_of(*node);
    if (value == nullptr) return std::nullopt;
  }
  return std::nullopt;
}

ir::Type with_axes_swapped(const Value& value) {
  ir::Shape shape = *shape_of(value);
  std::swap(shape[0], shape[1]);
  return ir::Type::tensor(value.dtype(), std::move(shape));
}

bool has_known_results(const Between& found) {
  return std::ranges::all_of(found.steps, [](const ir::Node* step) {
    for (std::size_t i = 0; i < step->output_count(); ++i)
      if (!has_rank(step->output(i), 3)) return false;
    return true;
  });
}

/// The same node with another tensor in the place of the one whose rows it computes with.
std::vector<Value*> write_step(Rewriter& rewriter, const ir::Node& step, Value& x) {
  const Value* old = step.is("", "Split") ? step.find_input(0) : rows_of(step);
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < step.input_count(); ++i)
    operands.push_back(step.find_input(i) == old ? &x : step.find_input(i));
  std::vector<ir::Type> types;
  for (std::size_t i = 0; i < step.output_count(); ++i) types.push_back(with_axes_swapped(step.output(i)));
  return rewriter.op_many(step.op(), operands, attributes_of(step), std::move(types));
}

Match match_swapped_back(const Facts&, ir::Node& node) {
  if (!swaps_batch(&node)) return Match::no("it does not swap the first two of three axes");
  const auto found = between(node);
  if (!found || found->steps.empty() || !has_known_results(*found))
    return Match::no("nothing but what is done row by row stands between it and another one");
  const bool is_first = std::ranges::all_of(found->turned, [&](const ir::Node* other) {
    return other == nullptr || other == &node || (&other->graph() == &node.graph() && node.is_before(*other));
  });
  if (!is_first) return Match::no("another part is turned before");
  return Match([found = *found](Rewriter& rewriter) {
    std::vector<Value*> values = {found.x};
    for (const ir::Node* step : found.steps | std::views::reverse)
      values = write_step(rewriter, *step, *values.front());
    for (std::size_t i = 0; i < values.size(); ++i)
      if (found.turned[i] != nullptr) rewriter.replace(found.turned[i]->output(), *values[i]);
  });
}

}  // namespace

void populate_sequence_first(PatternTable& table) {
  table.add({.name = "heads_of_sequence_first",
             .matches = "[sequence, batch, heads · size] read as [sequence, batch · heads, size], turned and read as "
                        "[batch, heads, sequence, size], for `Attention`",
             .makes = "a `Transpose` of the first two axes; the heads come to the front as elsewhere",
             .roots = {"Reshape"},
             .match = match_heads,
             .stage = Stage::kFuse,
             .opset = 23});
  table.add({.name = "swapped_back",
             .matches =
                 "a `Transpose` of the first two of three axes, what is done row by row (products with a weight, "
                 "biases, activations, a `Split` of the rows), and that `Transpose` again",
             .makes = "what is done row by row",
             .roots = {"Transpose"},
             .match = match_swapped_back,
             .stage = Stage::kFuse});
}

}  // namespace exportguard::optimizer
