#pragma once

#include "evaluator/datum.h"
#include "exportguard/ir/graph.h"

namespace exportguard::evaluator {

/// What a Constant node makes. @throws EvaluationError if it has no value.
Datum constant_of(const ir::Node& node, StringPool& strings, const c10::Device& device);

}  // namespace exportguard::evaluator
