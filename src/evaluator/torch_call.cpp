// Calls an operator of torch by name.
#include "evaluator/torch_call.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>

#include "evaluator/call.h"
#include "exportguard/common/torch_dtypes.h"
#include "operators/boxed_arguments.h"
#include "operators/schemas.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;
using c10::IValue;

std::optional<c10::OperatorHandle> find_schema(const ir::Node& node) {
  const bool is_overload = node.op().find('.') != std::string::npos;
  return is_overload ? operators::find_operator(node.domain(), node.op()) : std::nullopt;
}

IValue tensors(const std::vector<Datum>& items) {
  c10::List<Tensor> list;
  for (const Datum& item : items) list.push_back(item.tensor);
  return list;
}

IValue operand_value(const Call& call, std::size_t index, const c10::TypePtr& type) {
  const Datum& datum = call.datum(index);
  if (datum.items != nullptr) return tensors(*datum.items);
  if (datum.is_none()) return {};
  const ir::Value* value = call.node().find_input(index);
  const bool is_number = value != nullptr && value->type().is_scalar;
  if (type->kind() == c10::TypeKind::TensorType && !is_number) return datum.tensor;
  return operators::boxed_number(datum.tensor.item(), type);
}

Datum number_datum(const at::Scalar& scalar, const c10::Device& device) {
  const Tensor tensor = at::scalar_tensor(scalar, at::TensorOptions(device).dtype(scalar.type()));
  return Datum::of(tensor, from_scalar_type(tensor.scalar_type()));
}

void add_result(Call& call, const IValue& value) {
  if (value.isTensor()) {
    const Tensor& tensor = value.toTensor();
    return tensor.defined() ? call.result(tensor) : call.result(Datum());
  }
  if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) call.result(tensor);
    return;
  }
  call.result(value.isScalar() || value.isBool() ? number_datum(value.toScalar(), call.device()) : Datum());
}

void run_dispatched(Call& call) {
  const c10::OperatorHandle op = *find_schema(call.node());
  const auto operand = [&](std::size_t index, const c10::TypePtr& type) { return operand_value(call, index, type); };
  const auto fail = [&](const std::string& reason) { call.fail(reason); };
  torch::jit::Stack stack =
      operators::boxed_arguments(call.node().arguments(), op.schema(), {operand, call.device(), fail});

  op.callBoxed(stack);
  for (const IValue& value : stack) add_result(call, value);
}

}  // namespace

Operator find_torch_operator(const ir::Node& node) {
  if (const Operator row = OperatorTable::builtin().find(node.qualified_name())) return row;
  const auto schema = find_schema(node);
  return schema && !schema->schema().is_mutable() ? run_dispatched : nullptr;
}

}  // namespace exportguard::evaluator
