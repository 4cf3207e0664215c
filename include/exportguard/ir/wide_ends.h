#pragma once

#include <functional>
#include <set>
#include <string>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// Makes inputs and outputs of the main graph float32, where their names are among `names` and they are float16 or
/// bfloat16: the model rounds what it is given, and widens what it returns. What lies between computes as before.
/// Weights stay as they are, and so do nested graphs and local functions. Names, order and sizes are kept.
void widen_ends(Model& model, const std::set<std::string, std::less<>>& names);

}  // namespace exportguard::ir
