#include <algorithm>
#include <limits>

#include "exportguard/optimizer/rewriter.h"
#include "optimizer/eager_attention.h"
#include "optimizer/heads.h"

namespace exportguard::optimizer {
namespace {

constexpr std::size_t kKeys = 2;  // the axis, of keys and values in the operator's order

/// One number for each query beside its scores, which takes a share of the softmax and gives nothing for it.
struct Sinks {
  const ir::Node* softmax = nullptr;
  Value* scores = nullptr;
  Value* column = nullptr;  ///< of four axes, the last one of size 1; the others may be stretched
};

/// The first axes may be stretched by the operator's mask, if there are as many of them.
Value* before_expand(Value* column) {
  const ir::Node* stretched = producer_of(column, "Expand");
  return stretched && has_rank(stretched->input(0), 4) ? &stretched->input(0) : column;
}

/// Whether a Slice of at least one column leaves out the first or the last one, and which: 0 or 1.
std::optional<std::size_t> column_left_out(const Facts& facts, const ir::Node& slice) {
  constexpr double kToTheEnd = std::numeric_limits<std::int32_t>::max();
  const auto start = facts.number(slice.find_input(1));
  const auto end = facts.number(slice.find_input(2));
  const auto axes = facts.ints(slice.find_input(3));
  const bool is_plain = slice.find_input(4) == nullptr || facts.is_number(slice.find_input(4), 1);
  const bool is_of_columns = axes && axes->size() == 1 && has_rank(slice.output(), 4) &&
                             axis_from_start(slice.output(), axes->front()) == axis_from_start(slice.output(), -1);
  if (!is_plain || !is_of_columns || !(start == 0 || start == 1)) return std::nullopt;
  const bool is_last = start == 0;
  const bool says_so = end && (is_last ? *end == -1 : *end >= kToTheEnd);
  const bool loses_one = dim(slice.input(0), -1) == *dim(slice.output(), -1) + ir::Dim(1);
  return says_so || loses_one ? std::optional<std::size_t>(is_last ? 1 : 0) : std::nullopt;
}

std::optional<Sinks> sinks_of(const Facts& facts, const Value* weights) {
  const ir::Node* slice = producer_of(weights, "Slice");
  const ir::Node* softmax = slice && has_one_use(*weights) ? softmax_over_keys(slice->find_input(0)) : nullptr;
  const ir::Node* joined = softmax ? producer_of(softmax->find_input(0), "Concat") : nullptr;
  if (joined == nullptr || joined->input_count() != 2 || !has_rank(joined->output(), 4)) return std::nullopt;
  const auto place = column_left_out(facts, *slice);
  const bool is_of_columns =
      axis_from_start(joined->output(), int_attribute(*joined, "axis", 0)) == axis_from_start(joined->output(), -1);
  if (!place || !is_of_columns || dim(joined->input(*place), -1) != ir::Dim(1)) return std::nullopt;
  return Sinks{softmax, &joined->input(1 - *place), before_expand(&joined->input(*place))};
}

/// No number is so low that it is lost beside the scores of hidden keys.
bool are_finite(const Facts& facts, const Value* column) {
  const ir::Tensor* tensor = facts.constant(column);
  if (tensor == nullptr || tensor->numel() > 65536) return false;
  return std::ranges::all_of(tensor->to_doubles(), [](double x) { return x > kHides && x < -kHides; });
}

// ------------------------------------------------------------------------------------------------ the mask

/// Where a size may be read.
struct Sizes {
  Value* query;
  Value* key;
};

Value& stretched_to(Rewriter& rewriter, Value& x, const ir::Shape& shape, const Sizes& sizes) {
  if (shape_of(x) == shape) return x;
  std::vector<Value*> parts;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (const auto known = shape[i].constant()) {
      parts.push_back(&rewriter.ints({*known}));
    } else {
      parts.push_back(i == 3 ? &rewriter.size(*sizes.key, kKeys) : &rewriter.size(*sizes.query, i));
    }
  }
  Value& target = rewriter.op("Concat", parts, {{"axis", 0}}, ir::Type::tensor(DType::kInt64, ir::Shape{ir::Dim(4)}));
  return rewriter.op("Expand", {&x, &target}, {}, numbers(shape));
}

/// A softmax of nothing but minus infinity is NaN, and so is the operator's if a number of the row is.
Value& with_nan_for_nothing(Rewriter& rewriter, Value& column, Value& mask) {
  ir::Shape row = stretched(*shape_of(mask), ir::Shape{ir::Dim(1)});
  row.back() = ir::Dim(1);
  Value& highest = rewriter.op("ReduceMax", {&mask, &rewriter.ints({-1})}, {{"keepdims", 1}}, numbers(row));
  const ir::Shape shape = stretched(row, *shape_of(column));
  Value& larger = rewriter.op("Max", {&highest, &column}, {}, numbers(shape));
  Value& nothing = rewriter.op("Mul", {&larger, &number(rewriter, 0, "constant.f32.0")}, {}, numbers(shape));
  return rewriter.op("Add", {&column, &nothing}, {}, numbers(shape));
}

/// The sinks stand in a column of their own, for each head.
Value& mask_with_sinks(Rewriter& rewriter, const Eager& eager, Value& column, const Sizes& sizes) {
  const bool is_finite = are_finite(rewriter.facts(), &column);
  Value* sum = summed(rewriter, eager.steps);
  Value& mask = sum ? *sum : number(rewriter, 0, "constant.f32.0");
  const bool has_rows = !is_finite && !shape_of(mask)->empty();
  Value& sinks = has_rows ? with_nan_for_nothing(rewriter, column, mask) : column;

  ir::Shape shape = stretched(*shape_of(mask), *shape_of(sinks));
  shape[1] = *dim(*sizes.query, 1);
  shape[2] = *dim(*sizes.query, 2);
  shape[3] = ir::Dim(1);
  Value& last = stretched_to(rewriter, sinks, shape, sizes);
  shape[3] = *dim(*sizes.key, kKeys);
  Value& before = stretched_to(rewriter, mask, shape, sizes);
  shape[3] = shape[3] + ir::Dim(1);
  return rewriter.op("Concat", {&before, &last}, {{"axis", 3}}, numbers(shape));
}

// ------------------------------------------------------------------------------------------------ keys and values

/// One more key or value, of zeros.
Value& with_another(Rewriter& rewriter, Value& x) {
  ir::Shape shape = *shape_of(x);
  shape[kKeys] = shape[kKeys] + ir::Dim(1);
  return rewriter.op("Pad", {&x, &rewriter.ints({0, 0, 0, 0, 0, 0, 1, 0})}, {}, numbers(shape));
}

void write_with_sinks(Rewriter& rewriter, const Eager& eager, Value& column) {
  std::vector<Value*> operands = operands_of(rewriter, eager);
  const Sizes sizes = {operands[0], operands[1]};
  Value& mask = mask_with_sinks(rewriter, eager, column, sizes);

  Value* key = repeated_heads(operands[1]);
  Value* value = repeated_heads(operands[2]);
  if (shares_heads(*operands[0], key, value)) {
    operands[1] = key;
    operands[2] = value;
  }
  operands[1] = &with_another(rewriter, *operands[1]);
  operands[2] = &with_another(rewriter, *operands[2]);
  operands.push_back(&mask);
  write_attention(rewriter, eager, operands);
}

Match match_sinks(const Facts& facts, ir::Node& node) {
  const auto sinks = sinks_of(facts, node.find_input(0));
  if (!sinks) return Match::no("the first operand is no softmax of scores and a column that is left out");
  const auto eager = eager_of(facts, *sinks->scores, node.input(1));
  if (!eager) return Match::no("the scores are no product of queries and transposed keys");
  if (const char* reason = reason_against(*eager, node.output())) return Match::no(reason);
  return Match(
      [eager = *eager, column = sinks->column](Rewriter& rewriter) { write_with_sinks(rewriter, eager, *column); });
}

}  // namespace

void populate_attention_sinks(PatternTable& table) {
  table.add({.name = "attention_sinks",
             .matches = "softmax([scale · q · kᵀ + mask, sinks]) · v in float32, of four axes, without the column of "
                        "the sinks, as `attention_softmax` takes scores and masks",
             .makes = "`Attention` with one more key and value, both of zeros, and the sinks in the mask",
             .roots = {"MatMul"},
             .match = match_sinks,
             .stage = Stage::kFuse,
             .opset = 23});
}

}  // namespace exportguard::optimizer
