#include "importer/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "exportguard/common/errors.h"
#include "operators/facts.h"
#include "operators/schemas.h"

namespace exportguard::importer {
namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

/// Arguments of `node` from position `first` on, behind those given.
std::vector<CallArgument> with_rest(std::vector<CallArgument> arguments, const ir::Node& node, std::size_t first) {
  for (std::size_t i = first; i < node.arguments().size(); ++i) arguments.push_back(CallArgument::of(node, i));
  return arguments;
}

// ------------------------------------------------------------------------------------------------ sizes

/// A position along an axis: a number, or a SymInt.
struct Position {
  SymExpr value;
  CallArgument argument{std::int64_t{0}};
};

Position position(std::int64_t number) { return {SymExpr(number), CallArgument(number)}; }

Position size_of(ir::Value& value, std::int64_t axis, const TorchCall& call) {
  const SymExpr size = value.type().shape.value().at(static_cast<std::size_t>(axis));
  if (const auto number = size.constant()) return position(*number);
  return {size, call.aten("sym_size.int", {value, axis}, ir::Type::scalar(DType::kInt64, size))};
}

Position add(const Position& a, const Position& b, const TorchCall& call) {
  const SymExpr sum = a.value + b.value;
  if (const auto number = sum.constant()) return position(*number);
  if (a.value == SymExpr(0)) return b;
  const ir::Node& node = call.node("operator", "add", {a.argument, b.argument}, {ir::Type::scalar(DType::kInt64, sum)});
  return {sum, node.output()};
}

std::int64_t axis_at(const ir::Node& view, std::size_t argument) {
  const std::int64_t axis = find_integer(view, argument).value_or(0);
  return axis < 0 ? axis + static_cast<std::int64_t>(view.input(0).type().rank().value_or(0)) : axis;
}

// ------------------------------------------------------------------------------------------------ the way back

ir::Value& back_identity(const ScatterBack& back, const TorchCall&) { return back.part; }

ir::Value& back_reshape(const ScatterBack& back, const TorchCall& call) {
  return call.aten("reshape_as.default", {back.part, back.whole}, back.whole.type());
}

ir::Value& back_slice(const ScatterBack& back, const TorchCall& call) {
  return call.aten("slice_scatter.default", with_rest({back.whole, back.part}, back.view, 1), back.whole.type());
}

ir::Value& back_select(const ScatterBack& back, const TorchCall& call) {
  return call.aten("select_scatter.default", with_rest({back.whole, back.part}, back.view, 1), back.whole.type());
}

ir::Value& back_diagonal(const ScatterBack& back, const TorchCall& call) {
  return call.aten("diagonal_scatter.default", with_rest({back.whole, back.part}, back.view, 1), back.whole.type());
}

Position position_at(const ir::Node& node, std::size_t argument) {
  if (const auto number = find_integer(node, argument)) return position(*number);
  const ir::Value* value = find_operand(node, argument);
  if (value == nullptr || !value->type().value) {
    throw ImportError(fmt::format("cannot make a write through {} functional: argument {} must be an int or a SymInt",
                                  place_of(node), argument));
  }
  return {*value->type().value, CallArgument::of(node, argument)};
}

/// narrow(self, dim, start, length)
ir::Value& back_narrow(const ScatterBack& back, const TorchCall& call) {
  const Position start = position_at(back.view, 2);
  Position end = add(start, position_at(back.view, 3), call);
  const bool reaches_the_end = start.value.constant().value_or(0) < 0 && end.value == SymExpr(0);
  if (reaches_the_end) end = position(kEnd);
  const std::int64_t axis = axis_at(back.view, 1);
  return call.aten("slice_scatter.default", {back.whole, back.part, axis, start.argument, end.argument},
                   back.whole.type());
}

ir::Value& scatter_part(const ScatterBack& back, std::int64_t axis, const TorchCall& call) {
  Position start = position(0);
  for (std::size_t i = 0; i < back.output; ++i) start = add(start, size_of(back.view.output(i), axis, call), call);
  const Position end = add(start, size_of(back.view.output(back.output), axis, call), call);
  return call.aten("slice_scatter.default", {back.whole, back.part, axis, start.argument, end.argument},
                   back.whole.type());
}

/// split(self, size, dim), chunk(self, chunks, dim), tensor_split(self, sections, dim)
ir::Value& back_split(const ScatterBack& back, const TorchCall& call) {
  return scatter_part(back, axis_at(back.view, 2), call);
}

ir::Value& back_hsplit(const ScatterBack& back, const TorchCall& call) {
  return scatter_part(back, back.whole.type().rank() == 1 ? 0 : 1, call);
}

ir::Value& back_vsplit(const ScatterBack& back, const TorchCall& call) { return scatter_part(back, 0, call); }

ir::Value& back_dsplit(const ScatterBack& back, const TorchCall& call) { return scatter_part(back, 2, call); }

/// unbind(self, dim)
ir::Value& back_unbind(const ScatterBack& back, const TorchCall& call) {
  const auto index = static_cast<std::int64_t>(back.output);
  return call.aten("select_scatter.default", {back.whole, back.part, axis_at(back.view, 1), index}, back.whole.type());
}

/// A transposition undoes itself, and so does a conjugation.
ir::Value& back_transpose(const ScatterBack& back, const TorchCall& call) {
  return call.aten(back.view.op(), with_rest({back.part}, back.view, 1), back.whole.type());
}

std::vector<std::int64_t> integers(const ir::Node& node, std::size_t argument) {
  std::vector<std::int64_t> values;
  const auto* list = node.arguments().at(argument).get_if<ir::Argument::List>();
  if (list == nullptr) return values;
  for (const ir::Argument& item : *list) {
    const auto* number = item.get_if<std::int64_t>();
    if (number == nullptr) return {};
    values.push_back(*number);
  }
  return values;
}

/// permute(self, dims)
ir::Value& back_permute(const ScatterBack& back, const TorchCall& call) {
  const std::vector<std::int64_t> order = integers(back.view, 1);
  const auto rank = static_cast<std::int64_t>(order.size());
  ir::Argument::List inverse(order.size());
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::int64_t from = order[static_cast<std::size_t>(i)];
    inverse[static_cast<std::size_t>(from < 0 ? from + rank : from)] = ir::Argument{i};
  }
  return call.aten("permute.default", {back.part, CallArgument(ir::Argument{std::move(inverse)})}, back.whole.type());
}

/// movedim(self, source, destination)
ir::Value& back_movedim(const ScatterBack& back, const TorchCall& call) {
  return call.aten(back.view.op(), {back.part, CallArgument::of(back.view, 2), CallArgument::of(back.view, 1)},
                   back.whole.type());
}

ir::Value& back_view_as_real(const ScatterBack& back, const TorchCall& call) {
  return call.aten("view_as_complex.default", {back.part}, back.whole.type());
}

ir::Value& back_view_as_complex(const ScatterBack& back, const TorchCall& call) {
  return call.aten("view_as_real.default", {back.part}, back.whole.type());
}

DType real_dtype(const ir::Value& complex) {
  return complex.dtype() == DType::kComplex128 ? DType::kFloat64 : DType::kFloat32;
}

/// One of the two parts of complex numbers. The real part of a real tensor is that tensor.
ir::Value& back_complex_part(const ScatterBack& back, std::int64_t index, const TorchCall& call) {
  ir::Type type = back.whole.type();
  type.dtype = real_dtype(back.whole);
  if (type.shape) type.shape->emplace_back(2);
  ir::Value& parts = call.aten("view_as_real.default", {back.whole}, type);
  ir::Value& written = call.aten("select_scatter.default", {parts, back.part, std::int64_t{-1}, index}, type);
  return call.aten("view_as_complex.default", {written}, back.whole.type());
}

ir::Value& back_real(const ScatterBack& back, const TorchCall& call) {
  return is_complex(back.whole.dtype()) ? back_complex_part(back, 0, call) : back.part;
}

ir::Value& back_imag(const ScatterBack& back, const TorchCall& call) { return back_complex_part(back, 1, call); }

ir::Value& back_negation(const ScatterBack& back, const TorchCall& call) {
  return call.aten("neg.default", {back.part}, back.whole.type());
}

/// Any view that shows elements as they are (`unfold`, `as_strided`): the same view of their positions tells where each
/// element of the part goes.
ir::Value& back_by_position(const ScatterBack& back, const TorchCall& call) {
  const DType dtype = back.whole.dtype();
  const auto vector = [](DType of) { return ir::Type::tensor(of, ir::Shape{SymExpr::symbol("positions")}); };
  const CallArgument all(ir::Argument{ir::Argument::List{ir::Argument{std::int64_t{-1}}}});

  ir::Value& elements = call.aten("reshape.default", {back.whole, all}, vector(dtype));
  ir::Value& ones = call.aten("ones_like.default", {elements, DType::kInt64}, vector(DType::kInt64));
  ir::Value& counted = call.aten("cumsum.default", {ones, std::int64_t{0}}, vector(DType::kInt64));
  ir::Value& from_zero = call.aten("sub.Scalar", {counted, std::int64_t{1}}, vector(DType::kInt64));

  ir::Type positions_type = back.whole.type();
  positions_type.dtype = DType::kInt64;
  ir::Value& positions = call.aten("reshape_as.default", {from_zero, back.whole}, positions_type);
  ir::Type seen_type = back.part.type();
  seen_type.dtype = DType::kInt64;
  ir::Value& seen = call.aten(back.view.op(), with_rest({positions}, back.view, 1), seen_type);

  ir::Value& index =
      call.aten("reshape.default", {seen, all}, ir::Type::tensor(DType::kInt64, ir::Shape{SymExpr::symbol("seen")}));
  ir::Value& part =
      call.aten("reshape.default", {back.part, all}, ir::Type::tensor(dtype, ir::Shape{SymExpr::symbol("seen")}));
  ir::Value& written = call.aten("scatter.src", {elements, std::int64_t{0}, index, part}, vector(dtype));
  return call.aten("reshape_as.default", {written, back.whole}, back.whole.type());
}

ir::Value& back_bits(const ScatterBack& back, const TorchCall& call) {
  return call.aten("view.dtype", {back.part, back.whole.dtype()}, back.whole.type());
}

// ------------------------------------------------------------------------------------------------ table

enum class Kind { kIdentity, kReshape, kPart, kOther };

struct Rule {
  Kind kind;
  ir::Value& (*back)(const ScatterBack&, const TorchCall&);
  std::size_t axis = 0;  ///< kPart: the argument that is the axis
};

using Rules = std::map<std::string_view, Rule>;

void add_all(Rules& rules, Rule rule, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) rules.emplace(name, rule);
}

Rules make_rules() {
  Rules rules;
  add_all(rules, {Kind::kIdentity, back_identity},
          {"alias", "alpha_dropout", "contiguous", "detach", "dropout", "feature_alpha_dropout", "feature_dropout",
           "lift_fresh", "positive", "resolve_conj", "resolve_neg", "sum_to_size", "to", "type_as"});
  add_all(rules, {Kind::kReshape, back_reshape},
          {"_reshape_alias", "_unsafe_view", "atleast_1d", "atleast_2d", "atleast_3d", "flatten", "ravel", "reshape",
           "reshape_as", "squeeze", "unflatten", "unsqueeze", "view", "view_as"});
  add_all(rules, {Kind::kOther, back_transpose},
          {"adjoint", "_conj", "conj", "matrix_H", "mH", "mT", "numpy_T", "swapaxes", "swapdims", "t", "transpose"});
  add_all(rules, {Kind::kOther, back_movedim}, {"moveaxis", "movedim"});
  add_all(rules, {Kind::kOther, back_by_position}, {"as_strided", "unfold", "linalg_diagonal"});

  rules.emplace("real", Rule{Kind::kIdentity, back_real});
  rules.emplace("imag", Rule{Kind::kOther, back_imag});
  rules.emplace("_neg_view", Rule{Kind::kOther, back_negation});
  rules.emplace("permute", Rule{Kind::kOther, back_permute});
  rules.emplace("diagonal", Rule{Kind::kOther, back_diagonal});
  rules.emplace("view_as_real", Rule{Kind::kOther, back_view_as_real});
  rules.emplace("view_as_complex", Rule{Kind::kOther, back_view_as_complex});

  add_all(rules, {Kind::kPart, back_split, 2}, {"chunk", "split", "split_with_sizes", "tensor_split"});
  rules.emplace("slice", Rule{Kind::kPart, back_slice, 1});
  rules.emplace("select", Rule{Kind::kPart, back_select, 1});
  rules.emplace("narrow", Rule{Kind::kPart, back_narrow, 1});
  rules.emplace("unbind", Rule{Kind::kPart, back_unbind, 1});

  rules.emplace("hsplit", Rule{Kind::kOther, back_hsplit});
  rules.emplace("vsplit", Rule{Kind::kOther, back_vsplit});
  rules.emplace("dsplit", Rule{Kind::kOther, back_dsplit});
  return rules;
}

const Rule* find_rule(const ir::Node& view) {
  static const Rules rules = make_rules();
  static const Rule bits{Kind::kOther, back_bits};
  if (view.op() == "view.dtype") return &bits;
  const auto found = rules.find(operators::base_name(view.op()));
  return found == rules.end() ? nullptr : &found->second;
}

bool keeps_shape(const ir::Node& view) {
  const auto& before = view.input(0).type().shape;
  return before && before == view.output().type().shape;
}

bool is_whole_slice(const ir::Node& view) {
  const auto argument = [&](std::size_t i) { return find_integer(view, i); };
  const bool from_start = view.arguments().size() <= 2 || view.arguments()[2].is_none() || argument(2) == 0;
  const bool to_end = view.arguments().size() <= 3 || view.arguments()[3].is_none() || argument(3) == kEnd;
  const bool every = view.arguments().size() <= 4 || argument(4) == 1;
  return from_start && to_end && every;
}

/// Windows side by side, not over each other: elsewhere the order of the writes would count.
bool are_windows_apart(const ir::Node& unfold) {
  const auto size = find_integer(unfold, 2);
  const auto step = find_integer(unfold, 3);
  return size && step && *size <= *step;
}

/// Every axis steps over all that the axes of smaller strides reach.
bool are_strides_apart(const ir::Node& as_strided) {
  const std::vector<std::int64_t> sizes = integers(as_strided, 1);
  const std::vector<std::int64_t> strides = integers(as_strided, 2);
  if (strides.size() != sizes.size()) return false;
  std::multimap<std::int64_t, std::int64_t> by_stride;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes.at(i) != 1) by_stride.emplace(strides.at(i), sizes.at(i));
  }
  std::int64_t reach = 0;
  for (const auto& [stride, size] : by_stride) {
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return !sizes.empty();
}

bool shows_each_element_once(const ir::Node& view) {
  if (operators::base_name(view.op()) == "unfold") return are_windows_apart(view);
  return operators::base_name(view.op()) != "as_strided" || are_strides_apart(view);
}

}  // namespace

bool is_identity_view(const ir::Node& view) {
  const std::string_view base = operators::base_name(view.op());
  if (base == "slice") return is_whole_slice(view);
  if (base == "expand" || base == "expand_as" || base == "broadcast_to") return keeps_shape(view);
  const Rule* rule = find_rule(view);
  if (rule == nullptr || view.input(0).dtype() != view.output().dtype()) return false;
  return rule->kind == Kind::kIdentity || (rule->kind == Kind::kReshape && keeps_shape(view));
}

bool keeps_contiguity(const ir::Node& view) {
  const Rule* rule = find_rule(view);
  if (rule == nullptr || rule->kind == Kind::kOther) return false;
  const auto& shape = view.input(0).type().shape;
  if (rule->kind != Kind::kPart || !shape) return rule->kind != Kind::kPart;
  if (operators::base_name(view.op()) == "slice" && find_integer(view, 4).value_or(1) != 1) return false;
  const auto axis = axis_at(view, rule->axis);
  return std::all_of(shape->begin(), shape->begin() + axis, [](const ir::Dim& dim) { return dim == ir::Dim(1); });
}

bool shows_other_part(const ViewOutput& a, const ViewOutput& b) {
  if (&a.node == &b.node) return a.output != b.output;
  const bool are_entries =
      operators::base_name(a.node.op()) == "select" && operators::base_name(b.node.op()) == "select";
  if (!are_entries || axis_at(a.node, 1) != axis_at(b.node, 1)) return false;
  const auto first = find_integer(a.node, 2);
  const auto second = find_integer(b.node, 2);
  return first && second && (*first < 0) == (*second < 0) && *first != *second;
}

ir::Value& scatter_back(const ScatterBack& back, const TorchCall& call) {
  const Rule* rule = find_rule(back.view);
  const bool is_converted = rule && rule->back == back_identity && back.whole.dtype() != back.part.dtype();
  if (rule && !is_converted && shows_each_element_once(back.view)) return rule->back(back, call);
  const std::string write = call.before() ? place_of(*call.before()) : "a write";
  throw ImportError(
      fmt::format("cannot make {} functional: it writes through {}, whose elements cannot be put back; "
                  "clone the tensor before the write",
                  write, place_of(back.view)));
}

}  // namespace exportguard::importer
