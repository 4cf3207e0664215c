#pragma once

#include <optional>

#include "exportguard/evaluator/evaluator.h"
#include "exportguard/validation/divergence.h"

namespace exportguard::validation {

/// The node within a body that could not be run; nothing for one of a main graph.
std::optional<Inside> stopped_inside(const evaluator::EvaluationError& error);

/// The first value within the bodies of If, Loop and Scan that a node makes wrongly of right ones, iteration by
/// iteration; nothing if there are no bodies beside each other, or each value in them is right. The nodes are those of
/// `place`.
std::optional<Inside> look_inside(const Beside& place, const DivergenceOptions& options);

}  // namespace exportguard::validation
