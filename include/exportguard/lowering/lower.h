#pragma once

#include "exportguard/ir/graph.h"
#include "exportguard/lowering/table.h"
#include "exportguard/lowering/target.h"

namespace exportguard::lowering {

constexpr int kMinOpset = 18;
constexpr int kMaxOpset = 25;

struct LoweringOptions {
  int opset = 22;                        ///< 18 to 25
  const LoweringTable* table = nullptr;  ///< null: the built-in one
  Target target = Target::kOnnxRuntimeCpu;
};

/// Whether `lower` knows what to do with the node: there is a row for its operator, or a rule where it touches a
/// complex tensor. Bodies of higher-order operators are not looked at.
bool can_lower(const ir::Node& node, const LoweringTable& table);

/// Replaces every torch-level node of the model by ONNX nodes, in place, and erases what nobody reads afterwards.
/// Values keep their torch types and names. Nothing is lost when it throws: the model is then partly lowered and can
/// be printed.
/// @throws LoweringError with all that could not be lowered: operator, count, module paths, source lines.
/// @throws InvalidArgument for an opset out of range.
void lower(ir::Model& model, const LoweringOptions& options = {});

}  // namespace exportguard::lowering
