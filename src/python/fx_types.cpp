#include "python/fx_types.h"

#include <exportguard/common/errors.h>
#include <exportguard/common/torch_dtypes.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/fx_objects.h"

namespace exportguard::python {

FxTypes::FxTypes(const std::map<std::string, std::string>& dim_names) {
  // A name may say what the size is in terms of others: `past + seq`.
  for (const auto& [symbol, name] : dim_names) renamed_.emplace(symbol, SymExpr::parse(name));
}

ir::Type FxTypes::type(py::handle value) {
  PyObject* object = value.ptr();
  if (object == nullptr) return {};  // nothing is known of it
  if (THPVariable_Check(object)) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    const c10::SymIntArrayRef sizes = tensor.sym_sizes();
    ir::Shape shape;
    shape.reserve(sizes.size());
    for (const c10::SymInt& size : sizes) {
      shape.push_back(expression(size));
    }
    return ir::Type::tensor(from_scalar_type(tensor.scalar_type()), std::move(shape));
  }

  if (PyBool_Check(object)) return ir::Type::scalar(DType::kBool);
  if (PyLong_Check(object)) return ir::Type::scalar(DType::kInt64, SymExpr(value.cast<std::int64_t>()));
  if (PyFloat_Check(object)) return ir::Type::scalar(DType::kFloat64);

  const FxClasses& classes = FxClasses::get();
  if (py::isinstance(value, classes.sym_int)) return ir::Type::scalar(DType::kInt64, expression(value));
  if (py::isinstance(value, classes.sym_float)) return ir::Type::scalar(DType::kFloat64);
  if (py::isinstance(value, classes.sym_bool)) return ir::Type::scalar(DType::kBool);
  return {};
}

SymExpr FxTypes::expression(py::handle sym_int) {
  const FxNames& names = FxNames::get();
  const py::object node = attribute(sym_int, names.node);
  py::object made = attribute(node, names.expr_as_made);
  py::object environment = attribute(node, names.shape_env);
  const std::pair key(made.ptr(), environment.ptr());
  if (const auto found = by_made_.find(key); found != by_made_.end()) return found->second;
  const SymExpr expression = parsed(attribute(node, names.expr));
  by_made_.emplace(key, expression);
  kept_.push_back(std::move(made));
  kept_.push_back(std::move(environment));
  return expression;
}

SymExpr FxTypes::expression(const c10::SymInt& size) {
  return size.is_heap_allocated() ? expression_of(size) : SymExpr(std::int64_t{size.as_int_unchecked()});
}

const SymExpr& FxTypes::expression_of(const c10::SymInt& size) {
  const void* key = size.toSymNodeImplUnowned();
  if (const auto found = by_size_.find(key); found != by_size_.end()) return found->second;
  const auto number = size.maybe_as_int();  // asks Python
  py::object sym_int = py::cast(size);
  SymExpr made = number ? SymExpr(std::int64_t{*number}) : expression(sym_int);
  kept_.push_back(std::move(sym_int));
  return by_size_.emplace(key, std::move(made)).first->second;
}

const SymExpr& FxTypes::parsed(const py::object& sympy_expression) {
  const auto found = by_expression_.find(sympy_expression.ptr());
  if (found != by_expression_.end()) return found->second;
  const std::string text = py::str(sympy_expression).cast<std::string>();
  SymExpr expression;
  try {
    expression = SymExpr::parse(text).substitute(renamed_);
  } catch (const ParseError&) {
    // Not in the language of sizes (a fraction, a condition): an unknown that equals itself alone.
    expression = SymExpr::symbol(fmt::format("unknown_{}", by_expression_.size()));
  }
  kept_.push_back(sympy_expression);
  return by_expression_.emplace(sympy_expression.ptr(), std::move(expression)).first->second;
}

}  // namespace exportguard::python
