#include <algorithm>
#include <cmath>
#include <limits>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/bounds.h"
#include "optimizer/products.h"

namespace exportguard::optimizer {
namespace {

constexpr double kLowest = -static_cast<double>(std::numeric_limits<float>::max());
// A score below 1e23 is lost in a sum with this, so that a query that is hidden from every key sees all of them alike.
constexpr double kHides = -1e30;
constexpr std::size_t kMostSteps = 6;

/// What is done to the scores on their way to the softmax: a sum, a choice, or a product with a positive number.
struct Step {
  Value* summand = nullptr;
  bool is_subtracted = false;
  Value* shown = nullptr;    ///< bool: what is false gets `number` in the place of its score
  bool is_inverted = false;  ///< what is true gets it
  double number = 1;         ///< of the choice, or the factor
};

struct Eager {
  Value* query = nullptr;
  Value* key = nullptr;                ///< before it was transposed, or what that Transpose reads
  std::vector<std::int64_t> key_axes;  ///< of `key`, in the operator's order
  Value* value = nullptr;
  std::vector<Step> steps;  ///< the first one first
  bool has_floor = false;   ///< the smallest number takes the place of minus infinity
  double scale = 1;
  Value* factor = nullptr;  ///< of the scores, the same for all keys of a query; null if there is none
  double softcap = 0;
};

// ------------------------------------------------------------------------------------------------ the scores

/// c · tanh(y / c) as y, with the softcap c and y's factor noted.
Value* without_softcap(const Facts& facts, Value* scores, Eager& eager) {
  const Product outer = product_of(facts, scores);
  const ir::Node* tanh = outer.factors.size() == 1 ? producer_of(outer.factors.front(), "Tanh") : nullptr;
  if (tanh == nullptr) return scores;
  eager.softcap = eager.scale * outer.number;
  eager.scale *= outer.number;
  return tanh->find_input(0);
}

/// The operand without a number that it is multiplied with, which goes to the scale.
Value* without_number(const Facts& facts, Value* value, Eager& eager) {
  const Product product = product_of(facts, value);
  const bool is_scaled = product.factors.size() == 1 && product.number > 0 && value != product.factors.front();
  if (!is_scaled || !same_shape(*value, *product.factors.front())) return value;
  eager.scale *= product.number;
  return product.factors.front();
}

/// The keys behind a Transpose of the last two axes, whatever else that does.
bool take_keys(Value* transposed, Eager& eager) {
  const ir::Node* swap = producer_of(transposed, "Transpose");
  const auto* axes = swap ? find_ints_attribute(*swap, "perm") : nullptr;
  if (axes == nullptr || !has_rank(*transposed, axes->size()) || axes->size() < 3) return false;
  eager.key = &swap->input(0);
  eager.key_axes = *axes;
  std::swap(eager.key_axes[axes->size() - 2], eager.key_axes.back());
  return shape_of(*eager.key).has_value();
}

/// The product of queries and keys among the factors, which may have another one that is the same for all keys.
const ir::Node* find_product(const std::vector<Value*>& factors, const Value& whole, Eager& eager) {
  if (factors.empty() || factors.size() > 2) return nullptr;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const ir::Node* product = producer_of(factors[i], "MatMul");
    Value* other = factors.size() == 2 ? factors[1 - i] : nullptr;
    const bool is_for_all_keys = other == nullptr || dim(*other, -1) == ir::Dim(1);
    if (!product || !is_for_all_keys || !same_shape(product->output(), whole)) continue;
    eager.factor = other;
    return product;
  }
  return nullptr;
}

/// q · kᵀ times a number, maybe with a softcap.
bool take_product(const Facts& facts, Value* scores, Eager& eager) {
  const Value& whole = *scores;
  for (const Step& step : eager.steps) eager.scale *= step.summand || step.shown ? 1 : step.number;
  scores = without_softcap(facts, scores, eager);
  const Product product = product_of(facts, scores);
  const ir::Node* multiplied = find_product(product.factors, whole, eager);
  if (multiplied == nullptr) return false;
  eager.scale *= product.number;
  eager.query = without_number(facts, multiplied->find_input(0), eager);
  return take_keys(without_number(facts, multiplied->find_input(1), eager), eager);
}

using StepOf = std::pair<Step, Value*>;  // a step, and what it is done to

/// Where(shown, x, number), or with the operands the other way round.
void add_choices(const Facts& facts, const ir::Node& choice, std::vector<StepOf>& found) {
  for (const std::size_t kept : {1, 2}) {
    const auto number = facts.number(choice.find_input(3 - kept));
    if (!number || !same_shape(choice.input(kept), choice.output())) continue;
    found.push_back({{.shown = &choice.input(0), .is_inverted = kept == 2, .number = *number}, &choice.input(kept)});
  }
}

void add_sums(const ir::Node& sum, std::vector<StepOf>& found) {
  const bool is_subtracted = sum.op() == "Sub";
  for (std::size_t i = 0; i < (is_subtracted ? 1 : 2); ++i) {
    if (!same_shape(sum.input(i), sum.output())) continue;
    found.push_back({{.summand = &sum.input(1 - i), .is_subtracted = is_subtracted}, &sum.input(i)});
  }
}

/// What the last step may be.
std::vector<StepOf> last_steps(const Facts& facts, Value* scores) {
  std::vector<StepOf> found;
  if (const ir::Node* choice = producer_of(scores, "Where")) add_choices(facts, *choice, found);
  const ir::Node* sum = producer_of(scores, "Add");
  if (sum == nullptr) sum = producer_of(scores, "Sub");
  if (sum != nullptr) add_sums(*sum, found);

  const Product product = product_of(facts, scores);
  const bool is_scaled_sum = product.factors.size() == 1 && product.factors.front() != scores && product.number > 0 &&
                             producer_of(product.factors.front(), "Add");
  if (is_scaled_sum && same_shape(*scores, *product.factors.front()))
    found.push_back({{.number = product.number}, product.factors.front()});
  return found;
}

/// Takes the scores apart down to the product of queries and keys. A summand may be a product as well, so each operand
/// is tried.
std::optional<Eager> taken_apart(const Facts& facts, Value* scores, const Eager& outside, std::size_t level = 0) {
  Eager eager = outside;
  if (take_product(facts, scores, eager)) {
    std::ranges::reverse(eager.steps);
    return eager;
  }
  if (level == kMostSteps) return std::nullopt;
  for (const auto& [step, before] : last_steps(facts, scores)) {
    Eager inside = outside;
    inside.steps.push_back(step);
    if (auto found = taken_apart(facts, before, inside, level + 1)) return found;
  }
  return std::nullopt;
}

/// Max(scores, number) as the scores, if the number is the smallest one: it lifts minus infinity alone.
Value* without_floor(const Facts& facts, Value* scores, Eager& eager) {
  const ir::Node* larger = producer_of(scores, "Max");
  for (std::size_t i = 0; larger && larger->input_count() == 2 && i < 2; ++i) {
    const auto floor = facts.number(larger->find_input(i));
    const bool is_low = floor && *floor <= kLowest && std::isfinite(*floor);
    if (!is_low || !same_shape(larger->input(1 - i), *scores)) continue;
    eager.has_floor = true;
    return &larger->input(1 - i);
  }
  return scores;
}

/// What the softmax is of. The scores are q · kᵀ times a number.
std::optional<Eager> eager_of(const Facts& facts, const ir::Node& softmax, Value& value) {
  Eager eager;
  eager.value = &value;
  Value* scores = without_floor(facts, &softmax.input(0), eager);
  return taken_apart(facts, scores, eager);
}

// ------------------------------------------------------------------------------------------------ the mask

/// What is known of all that the steps add.
struct Mask {
  Bounds sum;               ///< of the summands that are known to be finite
  std::size_t open = 0;     ///< steps that may add minus infinity
  std::size_t choices = 0;  ///< all of them
  bool has_factor = false;
  bool is_choice_scaled = false;

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
    } else if (!step.summand) {
      mask.has_factor = true;
      mask.is_choice_scaled |= mask.choices > 0;
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

ir::Shape stretched(ir::Shape wide, ir::Shape other) {
  if (wide.size() < other.size()) std::swap(wide, other);
  for (std::size_t i = 1; i <= other.size(); ++i) {
    ir::Dim& dim = wide[wide.size() - i];
    if (dim == ir::Dim(1)) dim = other[other.size() - i];
  }
  return wide;
}

ir::Shape stretched(const Value& a, const Value& b) { return stretched(*shape_of(a), *shape_of(b)); }

const Value& mask_of(const Step& step) { return step.shown ? *step.shown : *step.summand; }

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
const char* reason_against(const Facts& facts, const Eager& eager) {
  for (const Step& step : eager.steps) {
    if (step.shown && !(step.number <= kHides))
      return "hidden keys have a score that is no large negative number, or minus infinity";
  }
  const Mask mask = mask_of(facts, eager.steps);
  if (mask.is_choice_scaled) return "hidden keys have a score that is multiplied";
  if (!mask.may_hide_all()) return nullptr;
  if (eager.has_floor) return "the mask may hide every key from a query with minus infinity, which is lifted";
  const ir::Shape shape = searched_shape(facts, eager.steps);
  const bool is_for_all_heads = shape.size() < 4 || shape[shape.size() - 3] == ir::Dim(1);
  return !shape.empty() && is_for_all_heads
             ? nullptr
             : "a mask for each head may hide every key from a query with minus infinity";
}

ir::Type numbers(ir::Shape shape) { return ir::Type::tensor(DType::kFloat32, std::move(shape)); }

Value& number(Rewriter& rewriter, double x, const char* name) {
  return rewriter.constant(ir::Tensor::scalar(x, DType::kFloat32), name);
}

/// The smallest number is minus infinity to a runtime; the one next to it is as small.
Value& above_lowest(Rewriter& rewriter) {
  const double next = std::nextafter(std::numeric_limits<float>::lowest(), 0.0F);
  return number(rewriter, next, "constant.f32.above_lowest");
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

Value& chosen(Rewriter& rewriter, const Step& step, Value* sum) {
  Value& hidden =
      step.number == kLowest
          ? above_lowest(rewriter)
          : number(rewriter, step.number, std::isinf(step.number) ? "constant.f32.-inf" : "constant.f32.hidden");
  Value& seen = sum ? *sum : number(rewriter, 0, "constant.f32.0");
  const std::vector<Value*> inputs = step.is_inverted ? std::vector<Value*>{step.shown, &hidden, &seen}
                                                      : std::vector<Value*>{step.shown, &seen, &hidden};
  return rewriter.op("Where", inputs, {}, numbers(stretched(*step.shown, seen)));
}

/// The sum with one more summand; the first one is the sum.
Value& added(Rewriter& rewriter, Value* sum, Value& summand, bool is_subtracted) {
  if (sum != nullptr)
    return rewriter.op(is_subtracted ? "Sub" : "Add", {sum, &summand}, {}, numbers(stretched(*sum, summand)));
  return is_subtracted ? rewriter.op("Neg", {&summand}, {}, numbers(*shape_of(summand))) : summand;
}

/// The sum behind a step that alone may hide every key.
Value& with_open_step(Rewriter& rewriter, const Step& step, Value* sum) {
  Value& mask = step.shown ? chosen(rewriter, step, nullptr)
                           : without_lowest(rewriter, added(rewriter, nullptr, *step.summand, step.is_subtracted));
  return added(rewriter, sum, with_nan_for_hidden(rewriter, mask), false);
}

Value& with_step(Rewriter& rewriter, const Step& step, Value* sum) {
  if (step.shown) return chosen(rewriter, step, sum);
  if (step.summand) return added(rewriter, sum, *step.summand, step.is_subtracted);
  Value& factor = number(rewriter, step.number, "constant.f32.mask_factor");
  return rewriter.op("Mul", {sum, &factor}, {}, numbers(*shape_of(*sum)));
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

// ------------------------------------------------------------------------------------------------ shapes

ir::Shape key_shape(const Eager& eager) {
  ir::Shape shape;
  for (const std::int64_t axis : eager.key_axes)
    shape.push_back((*shape_of(*eager.key))[static_cast<std::size_t>(axis)]);
  return shape;
}

/// Whether the batch and the heads are those of the queries; one head of keys and values may serve all of them.
bool has_batch_of(const ir::Shape& shape, const ir::Shape& query) {
  if (shape[0] != query[0]) return false;
  return shape.size() == 3 || shape[1] == query[1] || shape[1] == ir::Dim(1);
}

/// [batch, heads, sequence, size], or [batch, sequence, size] of a single head.
bool has_shapes(const Eager& eager) {
  const auto& query = shape_of(*eager.query);
  const auto& value = shape_of(*eager.value);
  const std::size_t rank = eager.key_axes.size();
  if (!query || !value || query->size() != rank || value->size() != rank) return false;
  const ir::Shape key = key_shape(eager);
  for (const ir::Shape& shape : {*query, key, *value}) {
    if (std::ranges::find(shape, ir::Dim(0)) != shape.end()) return false;
  }
  const bool is_known = rank == 4 ? (*query)[1].is_constant() && key[1] == (*value)[1]
                                  : query->back().is_constant() && value->back().is_constant();
  return is_known && has_batch_of(key, *query) && has_batch_of(*value, *query) && query->back() == key.back() &&
         key[rank - 2] == (*value)[rank - 2];
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

bool has_mask_shape(const Eager& eager) {
  return std::ranges::all_of(eager.steps, [&](const Step& step) {
    if (!step.shown && !step.summand) return true;
    const Value& mask = mask_of(step);
    return shape_of(mask) && shape_of(mask)->size() <= eager.key_axes.size() &&
           mask.dtype() == (step.shown ? DType::kBool : DType::kFloat32);
  });
}

// ------------------------------------------------------------------------------------------------ the pattern

/// The softmax over keys that gives the weights alone to the product with the values.
const ir::Node* softmax_of(const ir::Node& node) {
  const ir::Node* softmax = producer_of(node.find_input(0), "Softmax");
  const bool has_known_rank = softmax && (has_rank(softmax->output(), 4) || has_rank(softmax->output(), 3));
  const bool is_over_keys =
      has_known_rank && has_one_use(softmax->output()) &&
      axis_from_start(softmax->output(), int_attribute(*softmax, "axis", -1)) == axis_from_start(softmax->output(), -1);
  return is_over_keys ? softmax : nullptr;
}

void write_attention(Rewriter& rewriter, const Eager& eager, Value& scores) {
  Value& key = std::ranges::is_sorted(eager.key_axes) ? *eager.key : rewriter.transpose(*eager.key, eager.key_axes);
  Value& query = eager.factor ? rewriter.op("Mul", {eager.query, eager.factor}, {}, eager.query->type()) : *eager.query;
  std::vector<Value*> operands = {&query, &key, eager.value};
  if (Value* mask = mask_of_scores(rewriter, eager, scores)) operands.push_back(mask);
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("scale", eager.scale);
  if (eager.softcap > 0) attributes.emplace_back("softcap", eager.softcap);
  if (eager.key_axes.size() == 3) {
    attributes.emplace_back("q_num_heads", std::int64_t{1});
    attributes.emplace_back("kv_num_heads", std::int64_t{1});
  }
  Value& old = rewriter.root().output();
  rewriter.replace(old, rewriter.op("Attention", operands, std::move(attributes), old.type()));
}

Match match_eager(const Facts& facts, ir::Node& node) {
  const ir::Node* softmax = softmax_of(node);
  if (softmax == nullptr) return Match::no("the first operand is no softmax over the last of three or four axes");
  const auto eager = eager_of(facts, *softmax, node.input(1));
  if (!eager) return Match::no("the softmax is of no product of queries and transposed keys");
  if (node.output().dtype() != DType::kFloat32) return Match::no("it is not computed in float32");
  if (!is_scale(eager->scale) || (eager->softcap != 0 && !is_scale(eager->softcap)))
    return Match::no("the scale or the softcap is no positive number of float32");
  if (!has_shapes(*eager) || !has_mask_shape(*eager)) return Match::no("the shapes are not known, or stretched");
  if (!has_a_key(*eager)) return Match::no("there may be no key");
  if (const char* reason = reason_against(facts, *eager)) return Match::no(reason);
  return Match([=, eager = *eager, &scores = softmax->output()](Rewriter& rewriter) {
    write_attention(rewriter, eager, scores);
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
