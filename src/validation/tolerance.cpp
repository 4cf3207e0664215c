#include "exportguard/validation/comparison.h"

namespace exportguard::validation {

// For the few thousand terms and some dozen layers of usual models the rounding of sums adds up to about a hundred to a
// thousand epsilon where rounding is fine (float64, float32). In float16, bfloat16 and float8 both sides accumulate in
// float32 and round only what they store: some ten epsilon of the halves, one of float8. Epsilons are 2.2e-16, 1.2e-7,
// 9.8e-4, 7.8e-3, 0.125 (e4m3) and 0.25 (e5m2).
Tolerance tolerance_for(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return {.absolute = 1e-10, .relative = 1e-9};
    case DType::kFloat32:
    case DType::kComplex64:
      return {.absolute = 5e-5, .relative = 1e-4};
    case DType::kFloat16:
      return {.absolute = 1e-2, .relative = 1e-2};
    case DType::kBFloat16:
      return {.absolute = 8e-2, .relative = 8e-2};
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
      return {.absolute = 1.25e-1, .relative = 1.25e-1};
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
      return {.absolute = 2.5e-1, .relative = 2.5e-1};
    default:
      return {};
  }
}

}  // namespace exportguard::validation
