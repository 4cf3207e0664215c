#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::expansion {

/// One call of an operator, in terms of symbols `d0`, `d1`, … of its own, so that equal calls look the same.
struct Call {
  std::string target;                   ///< `aten.foo.default`
  std::vector<ir::Argument> arguments;  ///< in the order of the operator's schema
  std::vector<ir::Type> operands;       ///< type of `Argument::Operand{i}`
};

/// A graph of torch operators that computes the same: an input for each operand in order, an output for each of the
/// operator's. Null if there is none.
using Trace = std::function<std::unique_ptr<ir::Graph>(const Call&)>;

struct ExpansionOptions {
  /// Called once for each call in canonical form. What it throws goes through.
  Trace trace;
  /// Whether a node can stay as it is.
  std::function<bool(const ir::Node&)> is_known;
};

/// Replaces every torch-level operator that is not known by what `trace` makes of that one operator, again and again
/// until each is known or cannot be replaced; those stay, for the lowering to report. Returns how many were replaced.
/// An expansion's symbols that are none of its operands' become new ones at each place.
std::size_t expand(ir::Model& model, const ExpansionOptions& options);

}  // namespace exportguard::expansion
