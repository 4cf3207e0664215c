#pragma once

#include <string>
#include <string_view>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// `aten.add.Tensor (model.layers.3.mlp, modeling_llama.py:123)`: what stands there, and where if anything is known of
/// it.
std::string placed(std::string_view what, const Source* source);

}  // namespace exportguard::ir
