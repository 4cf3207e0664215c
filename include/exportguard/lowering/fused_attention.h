#pragma once

#include "exportguard/lowering/table.h"

namespace exportguard::lowering {

/// The built-in table, but that attention is written as `Attention` from opset 23 on, where masks and shapes allow it.
/// A kernel of it may want at least one sample, one query and one key; the operators it stands for do not.
const LoweringTable& table_with_fused_attention();

}  // namespace exportguard::lowering
