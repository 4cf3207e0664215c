#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "exportguard/evaluator/evaluator.h"
#include "exportguard/ir/graph.h"
#include "validation/segment.h"

namespace exportguard::validation {

/// A run of the reference that goes on as far as somebody asks for values. What is made on the way and was not asked
/// for yet is held, which is little where both sides make their values in one order.
class ReferenceRun {
 public:
  /// Gives values to `wanted` of the main graph of `reference`; all must outlive the run.
  ReferenceRun(const ir::Model& reference, std::span<const evaluator::Value> inputs, const std::string& device,
               const Values& wanted);

  /// The content of a wanted value, once; nothing if the run ends without it.
  /// @throws EvaluationError, what ends the run.
  std::optional<evaluator::Value> take(const ir::Value& value);

 private:
  std::unordered_map<const ir::Value*, evaluator::Value> made_;
  evaluator::Program program_;
  evaluator::Run run_;
};

}  // namespace exportguard::validation
