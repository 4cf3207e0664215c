#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <functional>
#include <span>
#include <string>

#include "exportguard/ir/graph.h"

namespace c10 {
struct FunctionSchema;
}

namespace exportguard::operators {

/// What the arguments of a node do not tell by themselves.
struct BoxedContext {
  /// Operand `index` as the schema's type asks for it.
  std::function<c10::IValue(std::size_t index, const c10::TypePtr& type)> operand;
  /// What devices become: a program's own is the one that it was exported on.
  c10::Device device;
  /// Throws; the argument says what is wrong with the call.
  std::function<void(const std::string&)> fail;
};

/// A number where the schema has `type`; as a tensor it does not decide the dtype of the result.
c10::IValue boxed_number(const at::Scalar& scalar, const c10::TypePtr& type);

/// The arguments of a torch-level node as the dispatcher takes them, the schema's defaults for those that are left out.
torch::jit::Stack boxed_arguments(std::span<const ir::Argument> given, const c10::FunctionSchema& schema,
                                  const BoxedContext& context);

}  // namespace exportguard::operators
