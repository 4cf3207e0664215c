#include "lowering/kernels.h"

#include <gtest/gtest.h>

namespace exportguard::lowering {
namespace {

TEST(KernelDtype, StaysWhereThereIsAKernel) {
  EXPECT_EQ(kernel_dtype("Add", DType::kInt8), DType::kInt8);
  EXPECT_EQ(kernel_dtype("Max", DType::kFloat16), DType::kFloat16);
}

TEST(KernelDtype, WidensToTheNearestKernelThatHoldsTheValues) {
  EXPECT_EQ(kernel_dtype("Max", DType::kInt16), DType::kInt32);
  EXPECT_EQ(kernel_dtype("Where", DType::kBool), DType::kUint8);
  EXPECT_EQ(kernel_dtype("CumSum", DType::kUint32), DType::kInt64);
}

TEST(KernelDtype, TakesFloat32ForFloat64WhereNothingElseRuns) {
  EXPECT_EQ(kernel_dtype("Erf", DType::kFloat64), DType::kFloat32);
}

TEST(KernelDtype, LeavesBfloat16ForOtherProviders) {
  EXPECT_EQ(kernel_dtype("Add", DType::kBFloat16), DType::kBFloat16);
}

TEST(KernelDtype, LeavesOperatorsThatItDoesNotKnow) {
  EXPECT_EQ(kernel_dtype("NoSuchOperator", DType::kBool), DType::kBool);
}

}  // namespace
}  // namespace exportguard::lowering
