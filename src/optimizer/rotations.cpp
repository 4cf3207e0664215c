#include "optimizer/rotations.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "optimizer/heads.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 24;  // of a table whose halves are compared
constexpr int kMostViews = 8;

// ------------------------------------------------------------------------------------------------ constant tables

/// Whether the axes are known, and none of them is the last one.
bool leave_last(const Facts& facts, const Value* axes, std::size_t rank) {
  const auto listed = facts.ints(axes);
  const auto last = static_cast<std::int64_t>(rank) - 1;
  return listed && std::ranges::none_of(*listed, [&](std::int64_t axis) { return axis == -1 || axis == last; });
}

/// Whether each row of the result is a row of the first operand, in another place or dtype.
bool keeps_rows(const Facts& facts, const ir::Node& node) {
  const auto from = node.input(0).type().rank();
  const auto to = node.output().type().rank();
  if (!node.domain().empty() || !from || !to || *from == 0) return false;
  if (node.op() == "Cast") return true;
  if (node.op() == "Gather")
    return axis_from_start(node.input(0), int_attribute(node, "axis", 0)) != last_axis(node.input(0));
  if (node.op() == "Slice") return leave_last(facts, node.find_input(3), *from);
  if (node.op() == "Squeeze") return leave_last(facts, node.find_input(1), *from);
  return node.op() == "Unsqueeze" && leave_last(facts, node.find_input(1), *to);
}

/// The numbers that come twice along the last axis, once; nothing if they do not.
std::optional<ir::Tensor> halved(const ir::Tensor& tensor, bool is_interleaved) {
  const bool is_table = is_floating(tensor.dtype()) && bit_width(tensor.dtype()) >= 16 && tensor.numel() > 0 &&
                        tensor.numel() <= kMostElements && !tensor.shape().empty() && tensor.shape().back() % 2 == 0;
  if (!is_table) return std::nullopt;
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> sizes = tensor.shape();
  sizes.back() /= 2;
  sizes.insert(is_interleaved ? sizes.end() : sizes.end() - 1, 2);
  const at::Tensor pairs = tensor.aten().reshape(sizes);
  const std::int64_t axis = is_interleaved ? -1 : -2;
  const at::Tensor once = pairs.select(axis, 0);
  return at::equal(once, pairs.select(axis, 1)) ? std::optional(ir::Tensor(once.contiguous())) : std::nullopt;
}

ir::Type with_half_rows(const ir::Type& type) {
  ir::Type halved = type;
  halved.shape->back() = ir::Dim(*type.shape->back().constant() / 2);
  return halved;
}

/// The views, the last one first, of half a table.
Value& viewed(Rewriter& rewriter, const std::vector<const ir::Node*>& views, Value& half) {
  Value* value = &half;
  for (std::size_t i = views.size(); i-- > 0;) {
    std::vector<Value*> operands = {value};
    for (std::size_t k = 1; k < views[i]->input_count(); ++k) operands.push_back(views[i]->find_input(k));
    value = &rewriter.op(views[i]->op(), std::move(operands), attributes_of(*views[i]),
                         with_half_rows(views[i]->output().type()));
  }
  return *value;
}

}  // namespace

std::optional<Half> half_of_constant(const Facts& facts, Value* value, bool is_interleaved) {
  if (value == nullptr || !shape_of(*value) || shape_of(*value)->empty()) return std::nullopt;
  std::vector<const ir::Node*> views;
  Value* from = value;
  while (facts.constant(from) == nullptr) {
    const ir::Node* node = from->producer();
    const bool is_view = node && views.size() < kMostViews && shape_of(*from) && keeps_rows(facts, *node);
    if (!is_view || !dim(*from, -1)->is_constant()) return std::nullopt;
    views.push_back(node);
    from = &node->input(0);
  }
  const auto half = halved(*facts.constant(from), is_interleaved);
  if (!half) return std::nullopt;
  const ir::Shape shape = *with_half_rows(value->type()).shape;
  return Half{shape, shape, [=, name = from->name() + ".half"](Rewriter& rewriter) -> Value& {
                return viewed(rewriter, views, rewriter.constant(*half, name));
              }};
}

std::optional<Half> whole_table(Value& table) {
  const auto& shape = shape_of(table);
  return shape ? std::optional(Half{*shape, *shape, [&table](Rewriter&) -> Value& { return table; }}) : std::nullopt;
}

// ------------------------------------------------------------------------------------------------ axes

std::int64_t last_axis(const Value& value) { return axis_from_start(value, -1).value_or(-1); }

bool joins_last_axis(const Value& joined, const ir::Node& concat) {
  const auto axis = axis_from_start(joined, int_attribute(concat, "axis", 0));
  return axis && *axis == last_axis(joined);
}

Value* before_last_axis(const Value* value) {
  const ir::Node* node = value ? value->producer() : nullptr;
  const bool adds_axes = node && (node->is("", "Unsqueeze") || node->is("", "Reshape"));
  if (!adds_axes || !shape_of(*value) || !shape_of(node->input(0))) return nullptr;
  const ir::Shape& with = *shape_of(*value);
  const ir::Shape& without = *shape_of(node->input(0));
  const bool is_last =
      with.size() >= 2 && !without.empty() && with.back() == ir::Dim(1) && with[with.size() - 2] == without.back();
  return is_last ? &node->input(0) : nullptr;
}

// ------------------------------------------------------------------------------------------------ the operator

std::vector<ir::NamedAttribute> turning(bool is_interleaved) {
  std::vector<ir::NamedAttribute> attributes;
  if (is_interleaved) attributes.emplace_back("interleaved", std::int64_t{1});
  return attributes;
}

namespace {

/// Which axis of a rotated tensor of rank 4 is the sequence: 2 with the heads before it, 1 with the heads behind.
enum class Layout : std::uint8_t { kHeadsFirst = 2, kHeadsLast = 1 };

/// A table [1 or batch, sequence, half] with an axis of size 1 where the heads are, or without the leading axes.
struct Table {
  const Half& half;
  bool has_batch;   ///< it has a size for each sample
  ir::Shape shape;  ///< [1 or batch, sequence, half]: that of the half but for axes of size 1
};

/// The axes of size 1 to take out of a shape, so that it is `wanted`; nothing if there are none such.
std::optional<std::vector<std::int64_t>> axes_beside(const ir::Shape& shape, const ir::Shape& wanted) {
  std::vector<std::int64_t> axes;
  std::size_t kept = wanted.size();
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (kept > 0 && shape[i] == wanted[kept - 1]) {
      --kept;
    } else if (shape[i] == ir::Dim(1)) {
      axes.insert(axes.begin(), static_cast<std::int64_t>(i));
    } else {
      return std::nullopt;
    }
  }
  return kept == 0 ? std::optional(axes) : std::nullopt;
}

ir::Shape without_first(const ir::Shape& shape) { return {shape.begin() + 1, shape.end()}; }

/// Whether the shapes differ in axes of size 1.
bool has_other_axes(const ir::Shape& given, const ir::Shape& wanted) {
  const bool is_one = axes_beside(given, wanted) || axes_beside(wanted, given);
  return is_one || (wanted[0] == ir::Dim(1) && axes_beside(given, without_first(wanted)));
}

std::optional<Table> table_for(const Half& half, const ir::Shape& of_x, Layout layout) {
  const ir::Shape& shape = half.shape;
  if (shape.empty() || shape.size() > 4) return std::nullopt;
  ir::Shape padded(4 - shape.size(), ir::Dim(1));
  padded.insert(padded.end(), shape.begin(), shape.end());
  const auto sequence = static_cast<std::size_t>(layout);
  const bool fits = padded[3 - sequence] == ir::Dim(1) && padded[sequence] == of_x[sequence] &&
                    padded[3] + padded[3] == of_x[3] && (padded[0] == ir::Dim(1) || padded[0] == of_x[0]);
  if (!fits) return std::nullopt;
  const bool has_batch = padded[0] == of_x[0];
  Table table{half, has_batch, {has_batch ? of_x[0] : ir::Dim(1), of_x[sequence], padded[3]}};
  return has_other_axes(half.given, table.shape) ? std::optional(table) : std::nullopt;
}

std::optional<Layout> layout_of(const Rotation& rotation) {
  for (const Layout layout : {Layout::kHeadsFirst, Layout::kHeadsLast}) {
    if (table_for(rotation.cos, rotation.shape, layout) && table_for(rotation.sin, rotation.shape, layout))
      return layout;
  }
  return std::nullopt;
}

Value& without_axes(Rewriter& rewriter, Value& value, const std::vector<std::int64_t>& axes, const ir::Shape& wanted) {
  return rewriter.op("Squeeze", {&value, &rewriter.ints(axes)}, {}, ir::Type::tensor(value.dtype(), wanted));
}

/// The elements in another shape: see `has_other_axes`.
Value& in_shape(Rewriter& rewriter, Value& value, const ir::Shape& wanted) {
  const ir::Shape& given = *shape_of(value);
  if (given == wanted) return value;
  if (const auto axes = axes_beside(given, wanted)) return without_axes(rewriter, value, *axes, wanted);
  if (const auto axes = axes_beside(wanted, given))
    return rewriter.op("Unsqueeze", {&value, &rewriter.ints(*axes)}, {}, ir::Type::tensor(value.dtype(), wanted));
  const ir::Shape rows = without_first(wanted);
  return in_shape(rewriter, without_axes(rewriter, value, axes_beside(given, rows).value(), rows), wanted);
}

/// As the operator wants it: [batch, sequence, half].
Value& cache_of(Rewriter& rewriter, const Table& table, Value& x) {
  const ir::Shape& of_x = *shape_of(x);
  Value* cache = &in_shape(rewriter, table.half.write(rewriter), table.shape);
  if (table.has_batch) return *cache;
  Value& target = rewriter.op("Concat", {&rewriter.size(x, 0), &rewriter.ints({1, 1})}, {{"axis", 0}},
                              ir::Type::tensor(DType::kInt64, ir::Shape{3}));
  return rewriter.op("Expand", {cache, &target}, {},
                     ir::Type::tensor(cache->dtype(), ir::Shape{of_x[0], table.shape[1], table.shape[2]}));
}

Value& rotated(Rewriter& rewriter, Value& x, const Rotation& rotation, Layout layout) {
  Value& cos = cache_of(rewriter, *table_for(rotation.cos, rotation.shape, layout), x);
  Value& sin = cache_of(rewriter, *table_for(rotation.sin, rotation.shape, layout), x);
  std::vector<ir::NamedAttribute> attributes = turning(rotation.is_interleaved);
  if (layout == Layout::kHeadsFirst)
    return rewriter.op("RotaryEmbedding", {&x, &cos, &sin}, std::move(attributes), x.type());
  Value& joined = heads_joined(rewriter, x);
  attributes.emplace_back("num_heads", *rotation.shape[2].constant());
  Value& turned = rewriter.op("RotaryEmbedding", {&joined, &cos, &sin}, std::move(attributes), joined.type());
  return rewriter.reshape(turned, rotation.shape);
}

void write_rotation(Rewriter& rewriter, const Rotation& rotation, Layout layout) {
  Value& old = rewriter.root().output();
  Value& from = *rotation.from;
  Value& x = *shape_of(from) == rotation.shape ? from : rewriter.reshape(from, rotation.shape);
  Value& result = rotated(rewriter, x, rotation, layout);
  rewriter.replace(old, *shape_of(old) == rotation.shape ? result : rewriter.reshape(result, *shape_of(old)));
}

/// [..., 2 n] as [..., n, 2].
ir::Shape in_pairs(const ir::Shape& shape) {
  ir::Shape pairs(shape.begin(), shape.end() - 1);
  pairs.emplace_back(*shape.back().constant() / 2);
  pairs.emplace_back(2);
  return pairs;
}

}  // namespace

Match match_rotation(ir::Node& node, const Rotation& rotation) {
  const ir::Shape& shape = rotation.shape;
  const DType dtype = rotation.from->dtype();
  const bool has_heads = shape.size() == 4 && shape[3].constant().value_or(0) > 0;
  const bool has_dtype = dtype == DType::kFloat32 || is_narrow_float(dtype);
  const auto& result = shape_of(node.output());
  const bool fits = has_heads && result && (*result == shape || *result == in_pairs(shape));
  if (!has_dtype || !fits || node.output().dtype() != dtype)
    return Match::no("x must be a float tensor of rank 4 with a known last axis");
  const auto layout = layout_of(rotation);
  if (!layout) return Match::no("the tables do not go with the sequence axis of x");
  if (*layout == Layout::kHeadsLast && !shape[2].is_constant()) return Match::no("the number of heads is not known");
  return Match([=, l = *layout](Rewriter& rewriter) { write_rotation(rewriter, rotation, l); });
}

}  // namespace exportguard::optimizer
