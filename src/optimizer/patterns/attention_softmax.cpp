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

/// Numbers that are added to the scores, in the order of the sum.
struct Mask {
  std::vector<Value*> summands;
  double factor = 1;       ///< of the summands
  Value* shown = nullptr;  ///< bool: what is false has the score `hidden` instead of the sum
  double hidden = 0;
  bool is_inverted = false;  ///< what is true has it
};

struct Eager {
  Value* query = nullptr;
  Value* key = nullptr;                ///< before it was transposed, or what that Transpose reads
  std::vector<std::int64_t> key_axes;  ///< of `key`, in the operator's order
  Value* value = nullptr;
  Mask mask;
  double scale = 1;
  double softcap = 0;
};

// ------------------------------------------------------------------------------------------------ the mask

/// Max(scores, number) as the scores, if the number is the smallest one: it lifts minus infinity alone.
Value* without_floor(const Facts& facts, Value* scores) {
  const ir::Node* larger = producer_of(scores, "Max");
  for (std::size_t i = 0; larger && larger->input_count() == 2 && i < 2; ++i) {
    const auto floor = facts.number(larger->find_input(i));
    const bool is_low = floor && *floor <= kLowest && std::isfinite(*floor);
    if (is_low && same_shape(larger->input(1 - i), *scores)) return &larger->input(1 - i);
  }
  return scores;
}

/// Takes Where(shown, scores, number) apart, or leaves the scores as they are.
Value* without_choice(const Facts& facts, Value* scores, Mask& mask) {
  const ir::Node* choice = producer_of(scores, "Where");
  if (choice == nullptr) return scores;
  for (const std::size_t kept : {1, 2}) {
    const auto hidden = facts.number(choice->find_input(3 - kept));
    if (!hidden || !same_shape(choice->input(kept), *scores)) continue;
    mask.shown = &choice->input(0);
    mask.hidden = *hidden;
    mask.is_inverted = kept == 2;
    return &choice->input(kept);
  }
  return scores;
}

bool is_score(const Value* value) {
  return producer_of(value, "MatMul") || producer_of(value, "Mul") || producer_of(value, "Div");
}

/// Takes sums apart; what is no product or MatMul of the scores' shape is a mask.
Value* without_summands(Value* scores, Mask& mask) {
  for (int level = 0; level < 2; ++level) {
    const ir::Node* sum = producer_of(scores, "Add");
    if (sum == nullptr) break;
    const bool is_first = is_score(sum->find_input(0)) || producer_of(sum->find_input(0), "Add");
    const std::size_t at = is_first && same_shape(sum->input(0), *scores) ? 0 : 1;
    if (!same_shape(sum->input(at), *scores)) break;
    mask.summands.insert(mask.summands.begin(), &sum->input(1 - at));
    scores = &sum->input(at);
  }
  return scores;
}

/// Why the mask may not be added by the operator; null if it may. A row of nothing but minus infinity is NaN in a
/// softmax and zeros in the operator, so no summand may be that.
const char* reason_against(const Facts& facts, const Mask& mask) {
  if (mask.shown && (mask.hidden > kHides || !std::isfinite(mask.hidden)))
    return "hidden keys have a score that is no large negative number, or minus infinity";
  Bounds sum;
  for (const Value* summand : mask.summands) {
    const auto bounds = bounds_of(facts, summand);
    if (!bounds) return "the mask may hide every key from a query with minus infinity";
    sum = {sum.low + mask.factor * bounds->low, sum.high + mask.factor * bounds->high};
  }
  return is_finite_in(sum, DType::kFloat32) ? nullptr : "the masks together may be minus infinity";
}

ir::Type as_numbers(const Value& value) { return ir::Type::tensor(DType::kFloat32, shape_of(value)); }

Value& number(Rewriter& rewriter, double x, const char* name) {
  return rewriter.constant(ir::Tensor::scalar(x, DType::kFloat32), name);
}

/// The smallest number is minus infinity to a runtime; the one next to it is as small.
Value& above_lowest(Rewriter& rewriter) {
  const double next = std::nextafter(std::numeric_limits<float>::lowest(), 0.0F);
  return number(rewriter, next, "constant.f32.above_lowest");
}

std::optional<ir::Shape> stretched(const Value& a, const Value& b) {
  if (!shape_of(a) || !shape_of(b)) return std::nullopt;
  ir::Shape wide = *shape_of(a);
  ir::Shape other = *shape_of(b);
  if (wide.size() < other.size()) std::swap(wide, other);
  for (std::size_t i = 1; i <= other.size(); ++i) {
    ir::Dim& dim = wide[wide.size() - i];
    if (dim == ir::Dim(1)) dim = other[other.size() - i];
  }
  return wide;
}

Value& chosen(Rewriter& rewriter, const Mask& mask, Value* sum) {
  Value& hidden = mask.hidden > kLowest ? number(rewriter, mask.hidden, "constant.f32.hidden") : above_lowest(rewriter);
  Value& seen = sum ? *sum : number(rewriter, 0, "constant.f32.0");
  const std::vector<Value*> inputs = mask.is_inverted ? std::vector<Value*>{mask.shown, &hidden, &seen}
                                                      : std::vector<Value*>{mask.shown, &seen, &hidden};
  return rewriter.op("Where", inputs, {}, ir::Type::tensor(DType::kFloat32, stretched(*mask.shown, seen)));
}

/// The summands added up, times their factor; null if there are none.
Value* sum_of(Rewriter& rewriter, const Mask& mask) {
  Value* sum = nullptr;
  for (Value* summand : mask.summands) {
    sum = sum ? &rewriter.op("Add", {sum, summand}, {}, ir::Type::tensor(DType::kFloat32, stretched(*sum, *summand)))
              : summand;
  }
  if (sum == nullptr || mask.factor == 1) return sum;
  Value& factor = number(rewriter, mask.factor, "constant.f32.mask_factor");
  return &rewriter.op("Mul", {sum, &factor}, {}, as_numbers(*sum));
}

Value* mask_of(Rewriter& rewriter, const Mask& mask) {
  Value* sum = sum_of(rewriter, mask);
  if (mask.shown) return &chosen(rewriter, mask, sum);
  const auto bounds = sum ? bounds_of(rewriter.facts(), sum) : std::nullopt;
  if (!bounds || bounds->low > kLowest * 0.99) return sum;
  Value& lowest = number(rewriter, kLowest, "constant.f32.lowest");
  Value& is_lowest = rewriter.op("Equal", {sum, &lowest}, {}, ir::Type::tensor(DType::kBool, shape_of(*sum)));
  return &rewriter.op("Where", {&is_lowest, &above_lowest(rewriter), sum}, {}, as_numbers(*sum));
}

/// Runtimes stretch the mask over samples and heads, not over queries and keys.
Value* mask_of_scores(Rewriter& rewriter, const Eager& eager, Value& scores) {
  Value* mask = mask_of(rewriter, eager.mask);
  if (mask == nullptr) return nullptr;
  const ir::Shape& shape = *shape_of(*mask);
  const ir::Shape& of_scores = *shape_of(scores);
  if (shape.size() >= 2 && shape[shape.size() - 1] == of_scores[3] && shape[shape.size() - 2] == of_scores[2])
    return mask;
  ir::Shape wide = shape;
  if (wide.size() < 2) wide.insert(wide.begin(), 2 - wide.size(), ir::Dim(1));
  wide[wide.size() - 2] = of_scores[2];
  wide[wide.size() - 1] = of_scores[3];
  std::vector<Value*> sizes(wide.size() - 2, &rewriter.ints({1}));
  sizes.push_back(&rewriter.size(scores, 2));
  sizes.push_back(&rewriter.size(scores, 3));
  const auto count = ir::Dim(static_cast<std::int64_t>(wide.size()));
  Value& target = rewriter.op("Concat", sizes, {{"axis", 0}}, ir::Type::tensor(DType::kInt64, ir::Shape{count}));
  return &rewriter.op("Expand", {mask, &target}, {}, ir::Type::tensor(DType::kFloat32, std::move(wide)));
}

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

/// c · (y + mask) as y + mask, with c for both of them.
Value* without_outer_number(const Facts& facts, Value* scores, Eager& eager) {
  const Product product = product_of(facts, scores);
  const bool is_sum = product.factors.size() == 1 && product.factors.front() != scores && product.number > 0 &&
                      producer_of(product.factors.front(), "Add");
  if (!is_sum || !same_shape(*scores, *product.factors.front())) return scores;
  eager.scale = product.number;
  eager.mask.factor = product.number;
  return product.factors.front();
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
  if (axes == nullptr || axes->size() != 4) return false;
  eager.key = &swap->input(0);
  eager.key_axes = *axes;
  std::swap(eager.key_axes[2], eager.key_axes[3]);
  return shape_of(*eager.key).has_value();
}

/// What the softmax is of. The scores are q · kᵀ times a number.
std::optional<Eager> eager_of(const Facts& facts, const ir::Node& softmax, Value& value) {
  Eager eager;
  eager.value = &value;
  Value* scores = without_choice(facts, without_floor(facts, &softmax.input(0)), eager.mask);
  scores = without_outer_number(facts, scores, eager);
  scores = without_summands(scores, eager.mask);
  scores = without_softcap(facts, scores, eager);
  const Product product = product_of(facts, scores);
  const ir::Node* multiplied = product.factors.size() == 1 ? producer_of(product.factors.front(), "MatMul") : nullptr;
  if (multiplied == nullptr || !same_shape(multiplied->output(), softmax.output())) return std::nullopt;
  eager.scale *= product.number;
  eager.query = without_number(facts, multiplied->find_input(0), eager);
  Value* keys = without_number(facts, multiplied->find_input(1), eager);
  return take_keys(keys, eager) ? std::optional(std::move(eager)) : std::nullopt;
}

// ------------------------------------------------------------------------------------------------ shapes

ir::Shape key_shape(const Eager& eager) {
  ir::Shape shape;
  for (const std::int64_t axis : eager.key_axes)
    shape.push_back((*shape_of(*eager.key))[static_cast<std::size_t>(axis)]);
  return shape;
}

bool has_shapes(const Eager& eager) {
  const auto& query = shape_of(*eager.query);
  const auto& value = shape_of(*eager.value);
  if (!query || !value || query->size() != 4 || value->size() != 4) return false;
  const ir::Shape key = key_shape(eager);
  for (const ir::Shape& shape : {*query, key, *value}) {
    if (std::ranges::find(shape, ir::Dim(0)) != shape.end()) return false;
  }
  return (*query)[0] == key[0] && key[0] == (*value)[0] && (*query)[1].is_constant() && (*query)[1] == key[1] &&
         key[1] == (*value)[1] && (*query)[3] == key[3] && key[2] == (*value)[2];
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
  const ir::Dim keys = key_shape(eager)[2];
  if (const auto count = keys.constant()) return *count > 0;
  return is_positive_sum(keys - (*shape_of(*eager.query))[2]) || !shows_input(eager.key);
}

bool has_mask_shape(const Eager& eager) {
  const auto fits = [](const Value* value) {
    return shape_of(*value) && shape_of(*value)->size() <= 4 &&
           (value->dtype() == DType::kFloat32 || value->dtype() == DType::kBool);
  };
  return std::ranges::all_of(eager.mask.summands, fits) && (!eager.mask.shown || fits(eager.mask.shown));
}

// ------------------------------------------------------------------------------------------------ the pattern

/// The softmax over keys that gives the weights alone to the product with the values.
const ir::Node* softmax_of(const ir::Node& node) {
  const ir::Node* softmax = producer_of(node.find_input(0), "Softmax");
  const bool is_over_keys = softmax && has_rank(softmax->output(), 4) && has_one_use(softmax->output()) &&
                            axis_from_start(softmax->output(), int_attribute(*softmax, "axis", -1)) == 3;
  return is_over_keys ? softmax : nullptr;
}

void write_attention(Rewriter& rewriter, const Eager& eager, Value& scores) {
  static const std::vector<std::int64_t> kInPlace = {0, 1, 2, 3};
  Value& key = eager.key_axes == kInPlace ? *eager.key : rewriter.transpose(*eager.key, eager.key_axes);
  std::vector<Value*> operands = {eager.query, &key, eager.value};
  if (Value* mask = mask_of_scores(rewriter, eager, scores)) operands.push_back(mask);
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("scale", eager.scale);
  if (eager.softcap > 0) attributes.emplace_back("softcap", eager.softcap);
  Value& old = rewriter.root().output();
  rewriter.replace(old, rewriter.op("Attention", operands, std::move(attributes), old.type()));
}

Match match_eager(const Facts& facts, ir::Node& node) {
  const ir::Node* softmax = softmax_of(node);
  if (softmax == nullptr) return Match::no("the first operand is no softmax over the last of four axes");
  const auto eager = eager_of(facts, *softmax, node.input(1));
  if (!eager) return Match::no("the softmax is of no product of queries and transposed keys");
  if (node.output().dtype() != DType::kFloat32) return Match::no("it is not computed in float32");
  if (!is_scale(eager->scale) || (eager->softcap != 0 && !is_scale(eager->softcap)))
    return Match::no("the scale or the softcap is no positive number of float32");
  if (!has_shapes(*eager) || !has_mask_shape(*eager)) return Match::no("the shapes are not known, or stretched");
  if (!has_a_key(*eager)) return Match::no("there may be no key");
  if (const char* reason = reason_against(facts, eager->mask)) return Match::no(reason);
  return Match([=, eager = *eager, &scores = softmax->output()](Rewriter& rewriter) {
    write_attention(rewriter, eager, scores);
  });
}

}  // namespace

void populate_attention_softmax(PatternTable& table) {
  table.add({.name = "attention_softmax",
             .matches =
                 "softmax(scale · q · kᵀ + mask) · v of four axes in float32, also with a softcap, with a mask of "
                 "bools that chooses between score and number; the mask is never minus infinity",
             .makes = "`Attention`",
             .roots = {"MatMul"},
             .match = match_eager,
             .stage = Stage::kFuse,
             .opset = 23});
}

}  // namespace exportguard::optimizer
