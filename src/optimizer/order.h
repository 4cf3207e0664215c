#pragma once

#include "exportguard/optimizer/facts.h"

namespace exportguard::optimizer {

/// Whatever else reads the value, in nested graphs too, comes behind `node`, so that `node` may give it.
bool is_read_behind(const Value& value, const ir::Node& node);

}  // namespace exportguard::optimizer
