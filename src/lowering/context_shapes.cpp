#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "exportguard/lowering/context.h"
#include "lowering/shared.h"

namespace exportguard::lowering {
namespace {

using Shared = LoweringContext::Shared;

template <typename Map, typename Key>
typename Map::mapped_type const* find_in_scopes(Shared& shared, Map Scope::* map, const Key& key) {
  for (auto scope = shared.scopes.rbegin(); scope != shared.scopes.rend(); ++scope) {
    const auto& entries = (*scope).*map;
    if (const auto entry = entries.find(key); entry != entries.end()) return &entry->second;
  }
  return nullptr;
}

std::optional<SymExpr> expression_of(const Shared& shared, const Size& size) {
  if (size.number()) return SymExpr(*size.number());
  const auto entry = shared.expressions.find(size.value());
  return entry == shared.expressions.end() ? std::nullopt : std::optional(entry->second);
}

bool is_never_negative(Shared& shared, const SymExpr& expression);

/// A symbol that no size of a tensor gives may be below zero: it may come from `item()`.
bool is_factor_never_negative(Shared& shared, const SymExpr& factor) {
  if (find_in_scopes(shared, &Scope::origins, factor)) return true;
  const auto call = factor.as_call();
  if (!call) return false;
  static constexpr std::string_view kMonotonic[] = {"FloorDiv", "CleanDiv", "CeilDiv", "Mod", "PythonMod", "Min"};
  const auto is_plain = [&](const SymExpr& argument) { return is_never_negative(shared, argument); };
  if (call->first == "Max") return std::ranges::any_of(call->second, is_plain);
  return std::ranges::find(kMonotonic, call->first) != std::end(kMonotonic) &&
         std::ranges::all_of(call->second, is_plain);
}

/// Whether the expression is at least zero whatever the inputs: sizes are, so are sums and products of them.
bool is_never_negative(Shared& shared, const SymExpr& expression) {
  if (const auto number = expression.constant()) return *number >= 0;
  if (find_in_scopes(shared, &Scope::origins, expression)) return true;
  return std::ranges::all_of(expression.terms(), [&](const SymExpr::Term& term) {
    return term.coefficient >= 0 && std::ranges::all_of(term.factors, [&](const SymExpr& factor) {
             return is_factor_never_negative(shared, factor);
           });
  });
}

SymExpr product(const ir::Shape& shape) {
  SymExpr total = 1;
  for (const ir::Dim& dim : shape) total = total * dim;
  return total;
}

/// Computes expressions from sizes with int64[1] arithmetic.
class SizeArithmetic {
 public:
  SizeArithmetic(LoweringContext& ctx, Shared& shared) : ctx_(ctx), shared_(shared) {}

  /// Null if a symbol comes from no input, or a function has no counterpart.
  Value* find(const SymExpr& expression) {
    if (const auto number = expression.constant()) return ctx_.ints({*number});
    if (Value* const* known = find_in_scopes(shared_, &Scope::dims, expression)) return *known;
    Value* made = read(expression);
    if (made == nullptr) made = compute(expression);
    if (made != nullptr) remember(expression, made);
    return made;
  }

  void remember(const SymExpr& expression, Value* dim) {
    shared_.scope().dims.try_emplace(expression, dim);
    shared_.expressions.try_emplace(dim, expression);
  }

 private:
  Value* read(const SymExpr& expression) {
    if (const auto* origin = find_in_scopes(shared_, &Scope::origins, expression)) {
      const auto [value, axis] = *origin;
      return ctx_.op("Shape", {value}, {{"start", axis}, {"end", axis + 1}});
    }
    if (Value* const* origin = find_in_scopes(shared_, &Scope::scalar_origins, expression)) {
      return ctx_.scalar_as_dim(*origin);
    }
    return nullptr;
  }

  Value* compute(const SymExpr& expression) {
    if (const auto call = expression.as_call()) return compute_call(call->first, call->second);
    const auto terms = expression.terms();
    if (terms.size() == 1 && terms[0].coefficient == 1 && terms[0].factors.size() == 1) return nullptr;  // a symbol
    Value* total = nullptr;
    for (const SymExpr::Term& term : terms) {
      Value* value = compute_term(term);
      if (value == nullptr) return nullptr;
      total = total ? ctx_.op("Add", {total, value}) : value;
    }
    return total;
  }

  Value* compute_term(const SymExpr::Term& term) {
    Value* total = term.coefficient == 1 && !term.factors.empty() ? nullptr : ctx_.ints({term.coefficient});
    for (const SymExpr& factor : term.factors) {
      Value* value = find(factor);
      if (value == nullptr) return nullptr;
      total = total ? ctx_.op("Mul", {total, value}) : value;
    }
    return total;
  }

  Value* compute_call(const std::string& function, const std::vector<SymExpr>& arguments) {
    static constexpr std::string_view kKnown[] = {"FloorDiv", "CleanDiv", "CeilDiv", "Mod", "PythonMod", "Max", "Min"};
    if (std::ranges::find(kKnown, function) == std::end(kKnown) || arguments.size() < 2) return nullptr;
    std::vector<Value*> values;
    for (const SymExpr& argument : arguments) {
      values.push_back(find(argument));
      if (values.back() == nullptr) return nullptr;
    }
    if (function == "Max" || function == "Min") return ctx_.op(function, values);
    if (function == "Mod" || function == "PythonMod") return ctx_.op("Mod", values);
    // ONNX divides towards zero; Python floors.
    const bool is_plain =
        std::ranges::all_of(arguments, [&](const SymExpr& argument) { return is_never_negative(shared_, argument); });
    if (function == "CeilDiv") values[0] = ctx_.op("Sub", {ctx_.op("Add", values), ctx_.ints({1})});
    Value* dividend = is_plain ? values[0] : ctx_.op("Sub", {values[0], ctx_.op("Mod", values)});
    return ctx_.op("Div", {dividend, values[1]});
  }

  LoweringContext& ctx_;
  Shared& shared_;
};

}  // namespace

Value* LoweringContext::find_dim_value(const SymExpr& expression) {
  return SizeArithmetic(*this, shared_).find(expression);
}

Value* LoweringContext::dim_value(const SymExpr& expression) {
  Value* value = find_dim_value(expression);
  if (value == nullptr)
    fail(fmt::format("the size {} cannot be computed from the sizes of the inputs", expression.str()));
  return value;
}

Value* LoweringContext::dim_of(Value* value, std::int64_t axis) {
  const auto count = static_cast<std::int64_t>(rank(value));
  const std::int64_t from = axis < 0 ? axis + count : axis;
  const SymExpr expression = size(value, axis);
  if (const auto number = expression.constant()) return ints({*number});
  if (Value* const* known = find_in_scopes(shared_, &Scope::dims, expression)) return *known;
  const bool has_origin = find_in_scopes(shared_, &Scope::origins, expression) != nullptr;
  if (has_origin) return dim_value(expression);
  Value* made = op("Shape", {value}, {{"start", from}, {"end", from + 1}});
  SizeArithmetic(*this, shared_).remember(expression, made);
  return made;
}

Value* LoweringContext::dim_scalar(Value* value, std::int64_t axis) { return dim_as_scalar(dim_of(value, axis)); }

Value* LoweringContext::dim_as_scalar(Value* dim) {
  const auto entry = shared_.expressions.find(dim);
  const auto number = entry == shared_.expressions.end() ? std::nullopt : entry->second.constant();
  if (number) return constant(*number, DType::kInt64);
  if (Value* const* known = find_in_scopes(shared_, &Scope::scalar_of_dim, dim)) return *known;
  Value* made = squeeze(dim, {0});
  shared_.scope().scalar_of_dim.emplace(dim, made);
  shared_.dim_of_scalar.emplace(made, dim);
  return made;
}

Value* LoweringContext::scalar_as_dim(Value* scalar) {
  if (const auto twin = shared_.dim_of_scalar.find(scalar); twin != shared_.dim_of_scalar.end()) return twin->second;
  Value* made = unsqueeze(cast(scalar, DType::kInt64), {0});
  if (scalar->type().value) shared_.expressions.try_emplace(made, *scalar->type().value);
  return made;
}

Value* LoweringContext::shape_of(Value* value) {
  const auto& shape = value->type().shape;
  const bool is_known = shape && std::ranges::all_of(*shape, [](const ir::Dim& dim) { return dim.is_constant(); });
  if (is_known) return concat_sizes(sizes_of(value));
  if (Value* const* known = find_in_scopes(shared_, &Scope::shapes, value)) return *known;
  return shared_.scope().shapes[value] = op("Shape", {value});
}

Value* LoweringContext::numel_of(Value* value) {
  if (value->type().shape) {
    if (Value* dim = find_dim_value(product(*value->type().shape))) return dim_as_scalar(dim);
  }
  return op("Size", {value});
}

std::vector<Size> LoweringContext::sizes_of(Value* value) {
  std::vector<Size> sizes;
  for (std::size_t axis = 0; axis < rank(value); ++axis) {
    const auto number = size(value, static_cast<std::int64_t>(axis)).constant();
    sizes.push_back(number ? Size(*number) : Size(dim_of(value, static_cast<std::int64_t>(axis))));
  }
  return sizes;
}

std::vector<Size> LoweringContext::output_sizes(std::size_t i) {
  const ir::Type& type = output_type(i);
  if (!type.shape) fail(fmt::format("the rank of output {} must be known", i));
  std::vector<Size> sizes;
  for (const ir::Dim& dim : *type.shape) {
    const auto number = dim.constant();
    sizes.push_back(number ? Size(*number) : Size(dim_value(dim)));
  }
  return sizes;
}

Value* LoweringContext::concat_sizes(const std::vector<Size>& sizes) {
  std::vector<Value*> parts;
  std::vector<std::int64_t> pending;
  std::vector<std::pair<std::int64_t, const Value*>> key;
  const auto flush = [&] {
    if (!pending.empty()) parts.push_back(ints(pending));
    pending.clear();
  };
  for (const Size& size : sizes) {
    const auto expression = expression_of(shared_, size);
    const auto number = expression ? expression->constant() : std::nullopt;
    key.emplace_back(number.value_or(0), number ? nullptr : size.value());
    if (number) {
      pending.push_back(*number);
      continue;
    }
    flush();
    parts.push_back(size.value());
  }
  if (parts.empty()) return ints(pending);
  if (Value* const* known = find_in_scopes(shared_, &Scope::concatenated, key)) return *known;
  flush();
  return shared_.scope().concatenated[key] = concat(parts, 0);
}

// ------------------------------------------------------------------------------------------------ shapes of tensors

namespace {

/// The size that `-1` stands for, if the symbols tell.
std::optional<SymExpr> inferred_size(const Shared& shared, const Value* value, const std::vector<Size>& sizes) {
  if (!value->type().shape) return std::nullopt;
  SymExpr others = 1;
  for (const Size& size : sizes) {
    const auto expression = expression_of(shared, size);
    if (!expression) return std::nullopt;
    if (expression->constant() != -1) others = others * *expression;
  }
  const SymExpr total = product(*value->type().shape);
  if (others.constant() == 0) return std::nullopt;
  const SymExpr quotient = floor_div(total, others);
  return quotient * others == total ? std::optional(quotient) : std::nullopt;
}

/// Sizes that equal the input's at the same position are written as 0, which ONNX reads as "copy"; `-1` is resolved
/// where the symbols tell. What then is constant needs no shape arithmetic at run time.
std::vector<Size> resolve(const Shared& shared, const Value* value, std::vector<Size> sizes, bool& copies) {
  for (Size& size : sizes) {
    if (size.number() != -1) continue;
    const auto inferred = inferred_size(shared, value, sizes);
    if (inferred && inferred->constant()) size = Size(*inferred->constant());
  }
  const auto& shape = value->type().shape;
  std::vector<Size> copied = sizes;
  copies = shape.has_value();
  for (std::size_t i = 0; i < sizes.size() && copies; ++i) {
    const auto expression = expression_of(shared, sizes[i]);
    const bool is_same = expression && i < shape->size() && (*shape)[i] == *expression;
    const bool is_positive = sizes[i].number().value_or(0) != 0;  // a number, -1 included
    if (is_same && !sizes[i].number()) copied[i] = Size(0);
    copies = copied[i].number().has_value() && (is_positive || is_same);
  }
  return copies ? copied : sizes;
}

}  // namespace

Value* LoweringContext::reshape(Value* value, const std::vector<Size>& sizes) {
  bool copies = false;
  const std::vector<Size> resolved = resolve(shared_, value, sizes, copies);
  std::vector<ir::NamedAttribute> attributes;
  const bool may_be_zero =
      std::ranges::any_of(resolved, [](const Size& size) { return size.number().value_or(0) == 0; });
  if (!copies && may_be_zero) attributes.emplace_back("allowzero", std::int64_t{1});
  Value* made = op("Reshape", {value, concat_sizes(resolved)}, std::move(attributes));
  ir::Shape shape;
  for (const Size& size : sizes) {
    auto expression = expression_of(shared_, size);
    if (expression && expression->constant() == -1) expression = inferred_size(shared_, value, sizes);
    shape.push_back(expression.value_or(shared_.fresh_symbol()));
  }
  made->set_type(ir::Type::tensor(value->dtype(), std::move(shape)));
  return made;
}

Value* LoweringContext::reshape_like_output(Value* value, std::size_t i) {
  const ir::Type& type = output_type(i);
  if (!type.shape) fail(fmt::format("the rank of output {} must be known", i));
  if (value->type().shape == type.shape) return value;
  std::vector<Size> sizes;
  std::size_t unknown = 0;
  for (const ir::Dim& dim : *type.shape) {
    if (const auto number = dim.constant()) {
      sizes.emplace_back(*number);
    } else if (Value* known = find_dim_value(dim)) {
      sizes.emplace_back(known);
    } else {
      sizes.emplace_back(-1);
      ++unknown;
    }
  }
  require(unknown <= 1, fmt::format("the sizes of {} cannot be computed from the inputs", type.str()));
  return reshape(value, sizes);
}

Value* LoweringContext::expand(Value* value, const std::vector<Size>& sizes) {
  const auto& shape = value->type().shape;
  if (!shape) return op("Expand", {value, concat_sizes(sizes)});
  const std::size_t added = sizes.size() - std::min(sizes.size(), shape->size());
  std::vector<Size> target = sizes;
  ir::Shape result;
  bool is_same = added == 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto expression = expression_of(shared_, sizes[i]);
    const bool keeps = i >= added && expression && (expression->constant() == -1 || (*shape)[i - added] == *expression);
    if (keeps) target[i] = Size(1);  // Expand broadcasts: 1 keeps what is there
    result.push_back(keeps ? (*shape)[i - added] : expression.value_or(shared_.fresh_symbol()));
    is_same = is_same && keeps;
  }
  if (is_same) return value;
  Value* made = op("Expand", {value, concat_sizes(target)});
  made->set_type(ir::Type::tensor(value->dtype(), std::move(result)));
  return made;
}

Value* LoweringContext::slice(Value* value, std::int64_t axis, Size start, Size end, std::int64_t step) {
  Value* made = op("Slice", {value, concat_sizes({start}), concat_sizes({end}), ints({axis}), ints({step})});
  if (value->type().shape) {
    ir::Shape shape = *value->type().shape;
    const auto count = static_cast<std::int64_t>(shape.size());
    shape.at(static_cast<std::size_t>(axis < 0 ? axis + count : axis)) = shared_.fresh_symbol();
    made->set_type(ir::Type::tensor(value->dtype(), std::move(shape)));
  }
  return made;
}

Value* LoweringContext::filled(const std::vector<Size>& sizes, Value* scalar) {
  Value* shape = concat_sizes(sizes);
  Value* made = nullptr;
  const ir::Tensor* content = find_constant(scalar);
  if (content != nullptr && content->numel() == 1 && !is_complex(content->dtype())) {
    const double number = content->to_doubles().front();
    const bool is_wide = content->dtype() == DType::kInt64 || content->dtype() == DType::kUint64;
    ir::Tensor element = is_wide ? ir::Tensor::ints({content->to_ints().front()})
                                 : ir::Tensor::filled(number, content->dtype(), std::vector<std::int64_t>{1});
    made = op("ConstantOfShape", {shape}, {{"value", std::move(element)}});
  } else {
    made = op("Expand", {scalar, shape});
  }
  ir::Shape result;
  for (const Size& size : sizes) result.push_back(expression_of(shared_, size).value_or(shared_.fresh_symbol()));
  made->set_type(ir::Type::tensor(scalar->dtype(), std::move(result)));
  return made;
}

}  // namespace exportguard::lowering
