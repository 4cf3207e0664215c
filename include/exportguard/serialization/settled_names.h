#pragma once

#include "exportguard/ir/graph.h"

namespace exportguard::serialization {

/// Gives every node and value the name that a file of the model would have for it; saving it then keeps them.
/// @throws GraphError for an input without a name.
void settle_names(ir::Model& model);

}  // namespace exportguard::serialization
