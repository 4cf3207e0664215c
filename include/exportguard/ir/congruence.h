#pragma once

#include <string>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// Why two graphs are not known to compute the same: the first output, in order, that is computed by another
/// expression, followed to the first node that differs. Empty if every output is computed by the same expression of the
/// inputs: operators, attributes, and the contents of initializers; names of values and the order of nodes do not
/// count. Inputs must agree in number, order, name and type, outputs in number, order, name and type.
std::string first_difference(const Graph& a, const Graph& b);

}  // namespace exportguard::ir
