#include "lowering/vectors.h"

namespace exportguard::lowering {

Value* as_vector(LoweringContext& ctx, Value* x) { return ctx.rank(x) == 0 ? ctx.unsqueeze(x, {0}) : x; }

Value* flattened(LoweringContext& ctx, Value* x) { return ctx.rank(x) == 1 ? x : ctx.reshape(x, {Size(-1)}); }

}  // namespace exportguard::lowering
