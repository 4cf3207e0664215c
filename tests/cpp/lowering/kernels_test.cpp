#include "lowering/kernels.h"

#include <gtest/gtest.h>

namespace exportguard::lowering {
namespace {

TEST(KernelDtype, StaysWhereThereIsAKernel) {
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "Add", DType::kInt8), DType::kInt8);
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "Max", DType::kFloat16), DType::kFloat16);
}

TEST(KernelDtype, WidensToTheNearestKernelThatHoldsTheValues) {
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "Max", DType::kInt16), DType::kInt32);
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "Where", DType::kBool), DType::kUint8);
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "CumSum", DType::kUint32), DType::kInt64);
}

TEST(KernelDtype, NeverTakesFloat32ForFloat64) {
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "Erf", DType::kFloat64), DType::kFloat64);
}

TEST(KernelDtype, LeavesBfloat16ForOtherProviders) {
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "Add", DType::kBFloat16), DType::kBFloat16);
}

TEST(KernelDtype, LeavesOperatorsThatItDoesNotKnow) {
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCpu, "NoSuchOperator", DType::kBool), DType::kBool);
}

TEST(KernelDtype, OfTheStandardAloneStays) {
  EXPECT_EQ(kernel_dtype(Target::kOnnx, "Erf", DType::kFloat64), DType::kFloat64);
}

TEST(KernelDtype, OfTheCudaProviderIsThatOfEitherProvider) {
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCuda, "Erf", DType::kFloat64), DType::kFloat64);
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCuda, "Max", DType::kInt8), DType::kInt8);
  EXPECT_EQ(kernel_dtype(Target::kOnnxRuntimeCuda, "CumSum", DType::kUint32), DType::kInt64);
}

TEST(Target, DepartsFromTheStandardOnlyIfItIsARuntime) {
  EXPECT_FALSE(departs(Target::kOnnx, Departure::kScanOfNothing));
  EXPECT_TRUE(departs(Target::kOnnxRuntimeCpu, Departure::kScanOfNothing));
  EXPECT_TRUE(departs(Target::kOnnxRuntimeCuda, Departure::kScanOfNothing));
}

}  // namespace
}  // namespace exportguard::lowering
