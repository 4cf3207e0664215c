#pragma once

#include "exportguard/lowering/context.h"

namespace exportguard::lowering {

/// aten.scaled_dot_product_attention as one `Attention` where that gives the same, else as the table's own row has it.
void lower_attention_as_one(LoweringContext& ctx);

}  // namespace exportguard::lowering
