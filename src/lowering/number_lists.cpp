#include "lowering/number_lists.h"

#include <ATen/ops/tensor.h>

#include "exportguard/common/torch_dtypes.h"

namespace exportguard::lowering {

Value* doubles(LoweringContext& ctx, const std::vector<double>& numbers, DType dtype) {
  return ctx.constant(ir::Tensor(at::tensor(numbers, to_scalar_type(dtype))));
}

}  // namespace exportguard::lowering
