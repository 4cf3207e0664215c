#include "exportguard/ir/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/builder_memory.h"

namespace exportguard::ir {
namespace {

bool is_never_negative(Builder::Memory& memory, const SymExpr& expression);

/// A symbol that no size of a tensor gives may be below zero: it may come from `item()`.
bool is_factor_never_negative(Builder::Memory& memory, const SymExpr& factor) {
  if (memory.find(&BuilderScope::origins, factor)) return true;
  const auto call = factor.as_call();
  if (!call) return false;
  static constexpr std::string_view kMonotonic[] = {"FloorDiv", "CleanDiv", "CeilDiv", "Mod", "PythonMod", "Min"};
  const auto is_plain = [&](const SymExpr& argument) { return is_never_negative(memory, argument); };
  if (call->first == "Max") return std::ranges::any_of(call->second, is_plain);
  return std::ranges::find(kMonotonic, call->first) != std::end(kMonotonic) &&
         std::ranges::all_of(call->second, is_plain);
}

/// Whether the expression is at least zero whatever the inputs: sizes are, so are sums and products of them.
bool is_never_negative(Builder::Memory& memory, const SymExpr& expression) {
  if (const auto number = expression.constant()) return *number >= 0;
  if (memory.find(&BuilderScope::origins, expression)) return true;
  return std::ranges::all_of(expression.terms(), [&](const SymExpr::Term& term) {
    return term.coefficient >= 0 && std::ranges::all_of(term.factors, [&](const SymExpr& factor) {
             return is_factor_never_negative(memory, factor);
           });
  });
}

SymExpr product(const Shape& shape) {
  SymExpr total = 1;
  for (const Dim& dim : shape) total = total * dim;
  return total;
}

/// Computes expressions from sizes with int64[1] arithmetic.
class SizeArithmetic {
 public:
  SizeArithmetic(Builder& builder, Builder::Memory& memory) : builder_(builder), memory_(memory) {}

  /// Null if a symbol comes from no input, or a function has no counterpart.
  Value* find(const SymExpr& expression) {
    if (const auto number = expression.constant()) return builder_.ints({*number});
    if (Value* const* known = memory_.find(&BuilderScope::dims, expression)) return *known;
    Value* made = read(expression);
    if (made == nullptr) made = compute(expression);
    if (made != nullptr) remember(expression, made);
    return made;
  }

  void remember(const SymExpr& expression, Value* dim) {
    memory_.scope().dims.try_emplace(expression, dim);
    if (memory_.elements.find(*dim) == nullptr) memory_.elements.set(*dim, {expression});
  }

 private:
  Value* read(const SymExpr& expression) {
    if (const auto* origin = memory_.find(&BuilderScope::origins, expression)) {
      const auto [value, axis] = *origin;
      return builder_.op("Shape", {value}, {{"start", axis}, {"end", axis + 1}});
    }
    if (Value* const* origin = memory_.find(&BuilderScope::scalar_origins, expression)) {
      return builder_.scalar_as_dim(*origin);
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
      total = total ? builder_.op("Add", {total, value}) : value;
    }
    return total;
  }

  Value* compute_term(const SymExpr::Term& term) {
    Value* total = term.coefficient == 1 && !term.factors.empty() ? nullptr : builder_.ints({term.coefficient});
    for (const SymExpr& factor : term.factors) {
      Value* value = find(factor);
      if (value == nullptr) return nullptr;
      total = total ? builder_.op("Mul", {total, value}) : value;
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
    if (function == "Max" || function == "Min") return builder_.op(function, values);
    if (function == "Mod" || function == "PythonMod") return builder_.op("Mod", values);
    // ONNX divides towards zero; Python floors.
    const bool is_plain =
        std::ranges::all_of(arguments, [&](const SymExpr& argument) { return is_never_negative(memory_, argument); });
    if (function == "CeilDiv") values[0] = builder_.op("Sub", {builder_.op("Add", values), builder_.ints({1})});
    Value* dividend = is_plain ? values[0] : builder_.op("Sub", {values[0], builder_.op("Mod", values)});
    return builder_.op("Div", {dividend, values[1]});
  }

  Builder& builder_;
  Builder::Memory& memory_;
};

}  // namespace

Value* Builder::find_dim_value(const SymExpr& expression) { return SizeArithmetic(*this, *memory_).find(expression); }

SymExpr Builder::fresh_size() { return fresh_symbol(memory_->model); }

Value* Builder::dim_value(const SymExpr& expression) {
  Value* value = find_dim_value(expression);
  if (value == nullptr)
    fail(fmt::format("the size {} cannot be computed from the sizes of the inputs", expression.str()));
  return value;
}

Value* Builder::dim_of(Value* value, std::int64_t axis) {
  const auto count = static_cast<std::int64_t>(rank(value));
  const std::int64_t from = axis < 0 ? axis + count : axis;
  const SymExpr expression = size(value, axis);
  if (const auto number = expression.constant()) return ints({*number});
  if (Value* const* known = memory_->find(&BuilderScope::dims, expression)) return *known;
  const bool has_origin = memory_->find(&BuilderScope::origins, expression) != nullptr;
  if (has_origin) return dim_value(expression);
  Value* made = op("Shape", {value}, {{"start", from}, {"end", from + 1}});
  SizeArithmetic(*this, *memory_).remember(expression, made);
  return made;
}

Value* Builder::dim_scalar(Value* value, std::int64_t axis) { return dim_as_scalar(dim_of(value, axis)); }

Value* Builder::dim_as_scalar(Value* dim) {
  const SymExpr* expression = memory_->find_expression(*dim);
  const auto number = expression ? expression->constant() : std::nullopt;
  if (number) return constant(*number, DType::kInt64);
  if (Value* const* known = memory_->find(&BuilderScope::scalar_of_dim, dim)) return *known;
  Value* made = squeeze(dim, {0});
  memory_->scope().scalar_of_dim.emplace(dim, made);
  memory_->dim_of_scalar.emplace(made, dim);
  return made;
}

Value* Builder::scalar_as_dim(Value* scalar) {
  if (const auto twin = memory_->dim_of_scalar.find(scalar); twin != memory_->dim_of_scalar.end()) return twin->second;
  Value* made = unsqueeze(cast(scalar, DType::kInt64), {0});
  if (scalar->type().value) memory_->elements.set(*made, {*scalar->type().value});
  return made;
}

Value* Builder::shape_of(Value* value) {
  const auto& shape = value->type().shape;
  const bool is_known = shape && std::ranges::all_of(*shape, [](const Dim& dim) { return dim.is_constant(); });
  if (is_known) return concat_sizes(sizes_of(value));
  if (Value* const* known = memory_->find(&BuilderScope::shapes, value)) return *known;
  return memory_->scope().shapes[value] = op("Shape", {value});
}

Value* Builder::numel_of(Value* value) {
  if (value->type().shape) {
    if (Value* dim = find_dim_value(product(*value->type().shape))) return dim_as_scalar(dim);
  }
  return op("Size", {value});
}

std::vector<Size> Builder::sizes_of(Value* value) {
  std::vector<Size> sizes;
  for (std::size_t axis = 0; axis < rank(value); ++axis) {
    const auto number = size(value, static_cast<std::int64_t>(axis)).constant();
    sizes.push_back(number ? Size(*number) : Size(dim_of(value, static_cast<std::int64_t>(axis))));
  }
  return sizes;
}

Value* Builder::concat_sizes(const std::vector<Size>& sizes) {
  std::vector<Value*> parts;
  std::vector<std::int64_t> pending;
  std::vector<std::pair<std::int64_t, const Value*>> key;
  const auto flush = [&] {
    if (!pending.empty()) parts.push_back(ints(pending));
    pending.clear();
  };

  for (const Size& size : sizes) {
    const auto expression = memory_->expression_of(size);
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
  if (Value* const* known = memory_->find(&BuilderScope::concatenated, key)) return *known;
  flush();
  return memory_->scope().concatenated[key] = concat(parts, 0);
}

// ------------------------------------------------------------------------------------------------ shapes of tensors

namespace {

/// The size that `-1` stands for, if the symbols tell.
std::optional<SymExpr> inferred_size(const Builder::Memory& memory, const Value* value,
                                     const std::vector<Size>& sizes) {
  if (!value->type().shape) return std::nullopt;
  SymExpr others = 1;
  for (const Size& size : sizes) {
    const auto expression = memory.expression_of(size);
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
std::vector<Size> resolve(const Builder::Memory& memory, const Value* value, std::vector<Size> sizes, bool& copies) {
  for (Size& size : sizes) {
    if (size.number() != -1) continue;
    const auto inferred = inferred_size(memory, value, sizes);
    if (inferred && inferred->constant()) size = Size(*inferred->constant());
  }
  const auto& shape = value->type().shape;
  std::vector<Size> copied = sizes;
  copies = shape.has_value();
  for (std::size_t i = 0; i < sizes.size() && copies; ++i) {
    const auto expression = memory.expression_of(sizes[i]);
    const bool is_same = expression && i < shape->size() && (*shape)[i] == *expression;
    const bool is_positive = sizes[i].number().value_or(0) != 0;  // a number, -1 included
    if (is_same && !sizes[i].number()) copied[i] = Size(0);
    copies = copied[i].number().has_value() && (is_positive || is_same);
  }
  return copies ? copied : sizes;
}

}  // namespace

Value* Builder::reshape(Value* value, const std::vector<Size>& sizes) {
  bool copies = false;
  const std::vector<Size> resolved = resolve(*memory_, value, sizes, copies);
  std::vector<NamedAttribute> attributes;
  const bool may_be_zero =
      std::ranges::any_of(resolved, [](const Size& size) { return size.number().value_or(0) == 0; });
  if (!copies && may_be_zero) attributes.emplace_back("allowzero", std::int64_t{1});
  Value* made = op("Reshape", {value, concat_sizes(resolved)}, std::move(attributes));
  Shape shape;
  for (const Size& size : sizes) {
    auto expression = memory_->expression_of(size);
    if (expression && expression->constant() == -1) expression = inferred_size(*memory_, value, sizes);
    shape.push_back(expression.value_or(fresh_symbol(memory_->model)));
  }
  made->set_type(Type::tensor(value->dtype(), std::move(shape)));
  return made;
}

namespace {

/// A tensor without elements of the size that `value` expands to. onnxruntime takes an Expand by 1s and 0s for one that
/// changes nothing.
Value* nothing_expanded(Builder& builder, Value* value, std::vector<Size> sizes) {
  const std::size_t added = sizes.size() - builder.rank(value);
  for (std::size_t i = added; i < sizes.size(); ++i) {
    if (sizes[i].number() == -1) sizes[i] = builder.dim_of(value, static_cast<std::int64_t>(i - added));
  }
  return builder.filled(sizes, builder.constant(0, value->dtype()));
}

}  // namespace

Value* Builder::expand(Value* value, const std::vector<Size>& sizes) {
  const auto& shape = value->type().shape;
  if (!shape) return op("Expand", {value, concat_sizes(sizes)});
  const auto is_zero = [&](const Size& size) {
    const auto expression = memory_->expression_of(size);
    return expression && expression->constant() == 0;
  };
  if (std::ranges::any_of(sizes, is_zero)) return nothing_expanded(*this, value, sizes);
  const std::size_t added = sizes.size() - std::min(sizes.size(), shape->size());
  std::vector<Size> target = sizes;
  Shape result;
  bool is_same = added == 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto expression = memory_->expression_of(sizes[i]);
    const bool keeps = i >= added && expression && (expression->constant() == -1 || (*shape)[i - added] == *expression);
    if (keeps) target[i] = Size(1);  // Expand broadcasts: 1 keeps what is there
    result.push_back(keeps ? (*shape)[i - added] : expression.value_or(fresh_symbol(memory_->model)));
    is_same = is_same && keeps;
  }
  if (is_same) return value;
  Value* made = op("Expand", {value, concat_sizes(target)});
  made->set_type(Type::tensor(value->dtype(), std::move(result)));
  return made;
}

Value* Builder::slice(Value* value, std::int64_t axis, Size start, Size end, Size step) {
  Value* made = op("Slice", {value, concat_sizes({start}), concat_sizes({end}), ints({axis}), concat_sizes({step})});
  if (value->type().shape) {
    Shape shape = *value->type().shape;
    const auto count = static_cast<std::int64_t>(shape.size());
    shape.at(static_cast<std::size_t>(axis < 0 ? axis + count : axis)) = fresh_symbol(memory_->model);
    made->set_type(Type::tensor(value->dtype(), std::move(shape)));
  }
  return made;
}

Value* Builder::filled(const std::vector<Size>& sizes, Value* scalar) {
  Value* shape = concat_sizes(sizes);
  Value* made = nullptr;
  const Tensor* content = find_constant(scalar);
  if (content != nullptr && content->numel() == 1 && !is_complex(content->dtype())) {
    const double number = content->to_doubles().front();
    const bool is_wide = content->dtype() == DType::kInt64 || content->dtype() == DType::kUint64;
    Tensor element = is_wide ? Tensor::ints({content->to_ints().front()})
                             : Tensor::filled(number, content->dtype(), std::vector<std::int64_t>{1});
    made = op("ConstantOfShape", {shape}, {{"value", std::move(element)}});
  } else {
    made = op("Expand", {scalar, shape});
  }
  Shape result;
  for (const Size& size : sizes) result.push_back(memory_->expression_of(size).value_or(fresh_symbol(memory_->model)));
  made->set_type(Type::tensor(scalar->dtype(), std::move(result)));
  return made;
}

}  // namespace exportguard::ir
