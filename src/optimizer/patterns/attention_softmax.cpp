#include <algorithm>
#include <cmath>
#include <limits>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/bounds.h"
#include "optimizer/eager_attention.h"

namespace exportguard::optimizer {
namespace {

constexpr double kLowest = -static_cast<double>(std::numeric_limits<float>::max());
/// Max(scores, number) as the scores, if the number is the smallest one: it lifts minus infinity alone.
Value* without_floor(const Facts& facts, Value* scores, bool& has_floor) {
  const ir::Node* larger = producer_of(scores, "Max");
  for (std::size_t i = 0; larger && larger->input_count() == 2 && i < 2; ++i) {
    const auto floor = facts.number(larger->find_input(i));
    const bool is_low = floor && *floor <= kLowest && std::isfinite(*floor);
    if (!is_low || !same_shape(larger->input(1 - i), *scores)) continue;
    has_floor = true;
    return &larger->input(1 - i);
  }
  return scores;
}

// ------------------------------------------------------------------------------------------------ the mask

/// What is known of all that the steps add.
struct Mask {
  Bounds sum;               ///< of the summands that are known to be finite
  std::size_t open = 0;     ///< steps that may add minus infinity
  std::size_t choices = 0;  ///< all of them
  bool has_factor = false;

  /// A query may be hidden from every key with minus infinity.
  bool may_hide_all() const { return open > 0 || !is_finite_in(sum, DType::kFloat32); }
  /// One step alone may do that, whatever the others add.
  bool hides_in_one_step(bool is_choice) const {
    return open == 1 && choices == (is_choice ? 1 : 0) && !has_factor && std::max(-sum.low, sum.high) <= -kHides;
  }
};

/// Whether the step may add minus infinity.
bool is_open(const Facts& facts, const Step& step) {
  return step.shown ? std::isinf(step.number) : step.summand && !bounds_of(facts, step.summand);
}

Mask mask_of(const Facts& facts, const std::vector<Step>& steps) {
  Mask mask;
  for (const Step& step : steps) {
    if (is_open(facts, step)) ++mask.open;
    if (step.shown) {
      ++mask.choices;
      if (std::isfinite(step.number)) {
        mask.sum = {std::min(mask.sum.low, step.number), std::max(mask.sum.high, step.number)};
      }
    } else if (!step.summand) {
      mask.has_factor = true;
      mask.sum = {mask.sum.low * step.number, mask.sum.high * step.number};
    } else if (const auto bounds = bounds_of(facts, step.summand)) {
      mask.sum = step.is_subtracted ? Bounds{mask.sum.low - bounds->high, mask.sum.high - bounds->low}
                                    : Bounds{mask.sum.low + bounds->low, mask.sum.high + bounds->high};
    }
  }
  return mask;
}

/// The step that alone may hide every key; null if there is none, or others have to be looked at with it.
const Step* only_open_step(const Facts& facts, const std::vector<Step>& steps) {
  const auto open = std::ranges::find_if(steps, [&](const Step& step) { return is_open(facts, step); });
  if (open == steps.end()) return nullptr;
  return mask_of(facts, steps).hides_in_one_step(open->shown != nullptr) ? &*open : nullptr;
}

/// The shape of what is searched for queries that see no key.
ir::Shape searched_shape(const Facts& facts, const std::vector<Step>& steps) {
  if (const Step* open = only_open_step(facts, steps)) return *shape_of(mask_of(*open));
  ir::Shape shape;
  for (const Step& step : steps) {
    if (step.shown || step.summand) shape = stretched(shape, *shape_of(mask_of(step)));
  }
  return shape;
}

/// Why the mask may not be added by the operator; null if it may.
const char* reason_against_mask(const Facts& facts, const Eager& eager, bool has_floor) {
  if (!mask_of(facts, eager.steps).may_hide_all()) return nullptr;
  if (has_floor) return "the mask may hide every key from a query with minus infinity, which is lifted";
  const ir::Shape shape = searched_shape(facts, eager.steps);
  const bool is_for_all_heads = shape.size() < 4 || shape[shape.size() - 3] == ir::Dim(1);
  return !shape.empty() && is_for_all_heads
             ? nullptr
             : "a mask for each head may hide every key from a query with minus infinity";
}

Value& without_lowest(Rewriter& rewriter, Value& mask) {
  Value& lowest = number(rewriter, kLowest, "constant.f32.lowest");
  Value& is_lowest = rewriter.op("Equal", {&mask, &lowest}, {}, ir::Type::tensor(DType::kBool, shape_of(mask)));
  return rewriter.op("Where", {&is_lowest, &above_lowest(rewriter), &mask}, {}, numbers(*shape_of(mask)));
}

/// A softmax of nothing but minus infinity is NaN, the operator's result zeros. The largest number of each row times 0
/// is 0 or NaN, and a row of NaN gives NaN.
Value& with_nan_for_hidden(Rewriter& rewriter, Value& mask) {
  ir::Shape row = *shape_of(mask);
  row.back() = ir::Dim(1);
  Value& largest = rewriter.op("ReduceMax", {&mask, &rewriter.ints({-1})}, {{"keepdims", 1}}, numbers(row));
  Value& nothing = rewriter.op("Mul", {&largest, &number(rewriter, 0, "constant.f32.0")}, {}, numbers(row));
  return rewriter.op("Add", {&mask, &nothing}, {}, numbers(*shape_of(mask)));
}

/// The sum behind a step that alone may hide every key.
Value& with_open_step(Rewriter& rewriter, const Step& step, Value* sum) {
  Value& mask = step.shown ? chosen(rewriter, step, nullptr)
                           : without_lowest(rewriter, added(rewriter, nullptr, *step.summand, step.is_subtracted));
  return added(rewriter, sum, with_nan_for_hidden(rewriter, mask), false);
}

/// What is added to the scores; null if that is nothing.
Value* written_mask(Rewriter& rewriter, const Eager& eager) {
  const Step* open = only_open_step(rewriter.facts(), eager.steps);
  Value* sum = nullptr;
  for (const Step& step : eager.steps) {
    const bool is_nothing = !step.shown && !step.summand && sum == nullptr;
    if (!is_nothing) sum = &step == open ? &with_open_step(rewriter, step, sum) : &with_step(rewriter, step, sum);
  }
  if (sum == nullptr || open != nullptr) return sum;
  const Mask mask = mask_of(rewriter.facts(), eager.steps);
  const bool may_be_lowest = mask.may_hide_all() || mask.sum.low <= kLowest * 0.99;
  if (may_be_lowest) sum = &without_lowest(rewriter, *sum);
  return mask.may_hide_all() ? &with_nan_for_hidden(rewriter, *sum) : sum;
}

/// Runtimes stretch the mask over samples and heads, not over queries and keys.
Value& stretched_to_scores(Rewriter& rewriter, Value& mask, Value& scores) {
  const ir::Shape& shape = *shape_of(mask);
  const std::size_t rank = shape_of(scores)->size();
  const ir::Dim queries = *dim(scores, -2);
  const ir::Dim keys = *dim(scores, -1);
  if (shape.size() >= 2 && shape[shape.size() - 1] == keys && shape[shape.size() - 2] == queries) return mask;
  ir::Shape wide = shape;
  if (wide.size() < 2) wide.insert(wide.begin(), 2 - wide.size(), ir::Dim(1));
  wide[wide.size() - 2] = queries;
  wide[wide.size() - 1] = keys;
  std::vector<Value*> sizes(wide.size() - 2, &rewriter.ints({1}));
  sizes.push_back(&rewriter.size(scores, rank - 2));
  sizes.push_back(&rewriter.size(scores, rank - 1));
  const auto count = ir::Dim(static_cast<std::int64_t>(wide.size()));
  Value& target = rewriter.op("Concat", sizes, {{"axis", 0}}, ir::Type::tensor(DType::kInt64, ir::Shape{count}));
  return rewriter.op("Expand", {&mask, &target}, {}, numbers(std::move(wide)));
}

/// Null if there is none. The operator has an axis for the heads.
Value* mask_of_scores(Rewriter& rewriter, const Eager& eager, Value& scores) {
  Value* mask = written_mask(rewriter, eager);
  if (mask == nullptr) return nullptr;
  Value& wide = stretched_to_scores(rewriter, *mask, scores);
  if (!has_rank(scores, 3) || !has_rank(wide, 3)) return &wide;
  ir::Shape with_heads = *shape_of(wide);
  with_heads.insert(with_heads.begin() + 1, ir::Dim(1));
  return &rewriter.op("Unsqueeze", {&wide, &rewriter.ints({1})}, {}, numbers(std::move(with_heads)));
}

bool is_positive_sum(const SymExpr& expression) {
  return std::ranges::all_of(expression.terms(), [](const SymExpr::Term& term) { return term.coefficient > 0; });
}

bool shows_input(const Value* value) {
  static constexpr std::string_view kViews[] = {"Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze",
                                                "Expand",   "Cast",      "Slice",   "Split"};
  while (value->producer() && std::ranges::find(kViews, value->producer()->op()) != std::end(kViews))
    value = value->producer()->find_input(0);
  return value->is_input();
}

/// Runtimes fail without a key. Keys that are an input alone are a cache, which may be empty.
bool has_a_key(const Eager& eager) {
  const ir::Dim keys = key_shape(eager)[eager.key_axes.size() - 2];
  if (const auto count = keys.constant()) return *count > 0;
  return is_positive_sum(keys - *dim(*eager.query, -2)) || !shows_input(eager.key);
}

// ------------------------------------------------------------------------------------------------ the pattern

Match match_eager(const Facts& facts, ir::Node& node) {
  const ir::Node* softmax = softmax_over_keys(node.find_input(0));
  if (softmax == nullptr) return Match::no("the first operand is no softmax over the last of three or four axes");
  bool has_floor = false;
  const auto eager = eager_of(facts, *without_floor(facts, &softmax->input(0), has_floor), node.input(1));
  if (!eager) return Match::no("the softmax is of no product of queries and transposed keys");
  if (const char* reason = reason_against(*eager, node.output())) return Match::no(reason);
  if (!has_a_key(*eager)) return Match::no("there may be no key");
  if (const char* reason = reason_against_mask(facts, *eager, has_floor)) return Match::no(reason);
  return Match([=, eager = *eager, &scores = softmax->output()](Rewriter& rewriter) {
    std::vector<Value*> operands = operands_of(rewriter, eager);
    if (Value* mask = mask_of_scores(rewriter, eager, scores)) operands.push_back(mask);
    write_attention(rewriter, eager, operands);
  });
}

}  // namespace

void populate_attention_softmax(PatternTable& table) {
  table.add({.name = "attention_softmax",
             .matches =
                 "softmax(scale · q · kᵀ + mask) · v in float32, of four axes or of the three of a single head, also "
                 "with a softcap, with several masks, with masks of bools that choose between score and number",
             .makes = "`Attention`; where a mask may be minus infinity for every key of a query, that query's is NaN",
             .roots = {"MatMul"},
             .match = match_eager,
             .stage = Stage::kFuse,
             .opset = 23});
}

}  // namespace exportguard::optimizer
