#include "optimizer/eager_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optimizer/products.h"

namespace exportguard::optimizer {
namespace {

constexpr double kLowest = -static_cast<double>(std::numeric_limits<float>::max());
constexpr std::size_t kMostSteps = 6;

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
  const bool has_sums = std::ranges::any_of(eager.steps, [](const Step& step) { return step.summand != nullptr; });
  if (has_sums && !has_one_use(multiplied->output())) return false;  // a summand may be computed from it
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
    // What is added may not be computed from the scores: a row's largest and a mask that hides all of it, of 1e9 each,
    // are gone when they are summed up first, and scores that were lost beside one of them are there again.
    if (step.summand && !has_one_use(*before)) continue;
    Eager inside = outside;
    inside.steps.push_back(step);
    if (auto found = taken_apart(facts, before, inside, level + 1)) return found;
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------------------ shapes

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

bool has_mask_shape(const Eager& eager) {
  return std::ranges::all_of(eager.steps, [&](const Step& step) {
    if (!step.shown && !step.summand) return true;
    const Value& mask = mask_of(step);
    return shape_of(mask) && shape_of(mask)->size() <= eager.key_axes.size() &&
           mask.dtype() == (step.shown ? DType::kBool : DType::kFloat32);
  });
}

/// A hidden key has a number in its score's place, and the operator adds that number.
const char* reason_against_choices(const std::vector<Step>& steps) {
  bool has_choice = false;
  for (const Step& step : steps) {
    if (step.shown && !(step.number <= kHides))
      return "hidden keys have a score that is no large negative number, or minus infinity";
    if (has_choice && !step.shown && !step.summand) return "hidden keys have a score that is multiplied";
    has_choice |= step.shown != nullptr;
  }
  return nullptr;
}

}  // namespace

const ir::Node* softmax_over_keys(const Value* weights) {
  const ir::Node* softmax = producer_of(weights, "Softmax");
  const bool has_known_rank = softmax && (has_rank(*weights, 4) || has_rank(*weights, 3));
  const bool is_over_keys =
      has_known_rank && has_one_use(*weights) &&
      axis_from_start(*weights, int_attribute(*softmax, "axis", -1)) == axis_from_start(*weights, -1);
  return is_over_keys ? softmax : nullptr;
}

std::optional<Eager> eager_of(const Facts& facts, Value& scores, Value& value) {
  Eager outside;
  outside.value = &value;
  return taken_apart(facts, &scores, outside);
}

ir::Shape key_shape(const Eager& eager) {
  ir::Shape shape;
  for (const std::int64_t axis : eager.key_axes)
    shape.push_back((*shape_of(*eager.key))[static_cast<std::size_t>(axis)]);
  return shape;
}

const char* reason_against(const Eager& eager, const Value& result) {
  if (result.dtype() != DType::kFloat32) return "it is not computed in float32";
  if (!is_scale(eager.scale) || (eager.softcap != 0 && !is_scale(eager.softcap)))
    return "the scale or the softcap is no positive number of float32";
  if (!has_shapes(eager) || !has_mask_shape(eager)) return "the shapes are not known, or stretched";
  return reason_against_choices(eager.steps);
}

// ------------------------------------------------------------------------------------------------ what is written

ir::Type numbers(ir::Shape shape) { return ir::Type::tensor(DType::kFloat32, std::move(shape)); }

Value& number(Rewriter& rewriter, double x, const char* name) {
  return rewriter.constant(ir::Tensor::scalar(x, DType::kFloat32), name);
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

Value& above_lowest(Rewriter& rewriter) {
  const double next = std::nextafter(std::numeric_limits<float>::lowest(), 0.0F);
  return number(rewriter, next, "constant.f32.above_lowest");
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

Value& added(Rewriter& rewriter, Value* sum, Value& summand, bool is_subtracted) {
  if (sum != nullptr)
    return rewriter.op(is_subtracted ? "Sub" : "Add", {sum, &summand}, {}, numbers(stretched(*sum, summand)));
  return is_subtracted ? rewriter.op("Neg", {&summand}, {}, numbers(*shape_of(summand))) : summand;
}

Value& with_step(Rewriter& rewriter, const Step& step, Value* sum) {
  if (step.shown) return chosen(rewriter, step, sum);
  if (step.summand) return added(rewriter, sum, *step.summand, step.is_subtracted);
  Value& factor = number(rewriter, step.number, "constant.f32.mask_factor");
  return rewriter.op("Mul", {sum, &factor}, {}, numbers(*shape_of(*sum)));
}

Value* summed(Rewriter& rewriter, const std::vector<Step>& steps) {
  Value* sum = nullptr;
  for (const Step& step : steps) {
    const bool is_nothing = !step.shown && !step.summand && sum == nullptr;
    if (!is_nothing) sum = &with_step(rewriter, step, sum);
  }
  return sum;
}

std::vector<Value*> operands_of(Rewriter& rewriter, const Eager& eager) {
  Value& key = std::ranges::is_sorted(eager.key_axes) ? *eager.key : rewriter.transpose(*eager.key, eager.key_axes);
  Value& query = eager.factor ? rewriter.op("Mul", {eager.query, eager.factor}, {}, eager.query->type()) : *eager.query;
  return {&query, &key, eager.value};
}

void write_attention(Rewriter& rewriter, const Eager& eager, const std::vector<Value*>& operands) {
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

}  // namespace exportguard::optimizer
