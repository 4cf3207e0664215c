#include "exportguard/common/dtypes.h"

#include <gmock/gmock.h>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"

namespace exportguard {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DTypes, EveryNameReadsBackAsItsDtype) {
  for (int i = 0; i < 27; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(dtype(name(type)), type) << name(type);
  }
}

TEST(DTypes, AnUnknownNameIsRefusedWithExamples) {
  EXPECT_EQ(find_dtype("float"), std::nullopt);
  EXPECT_THAT([] { (void)dtype("float"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("unknown dtype 'float'; use a name")));
}

TEST(DTypes, FamiliesAndWidthsAreThoseOfOnnx) {
  EXPECT_TRUE(is_floating(DType::kBFloat16) && is_floating(DType::kFloat8E5M2) && !is_floating(DType::kInt32));
  EXPECT_TRUE(is_integral(DType::kUint4) && is_integral(DType::kInt64) && !is_integral(DType::kBool));
  EXPECT_TRUE(is_unsigned(DType::kUint16) && !is_unsigned(DType::kInt16));
  EXPECT_TRUE(is_complex(DType::kComplex128) && !is_complex(DType::kFloat64));
  EXPECT_EQ(bit_width(DType::kInt4), 4);
  EXPECT_EQ(bit_width(DType::kBool), 8);
  EXPECT_EQ(bit_width(DType::kString), 0);
}

TEST(TorchDtypes, EveryDtypeWithATorchCounterpartSurvivesTheRoundTrip) {
  for (int i = 1; i < 27; ++i) {
    const auto type = static_cast<DType>(i);
    if (type == DType::kString || type == DType::kFloat4E2M1 || bit_width(type) == 2) continue;
    EXPECT_EQ(from_scalar_type(to_scalar_type(type)), type) << name(type);
  }
}

TEST(TorchDtypes, ADtypeThatOnnxLacksIsNamed) {
  EXPECT_THAT([] { (void)from_scalar_type(c10::ScalarType::ComplexHalf); },
              ThrowsMessage<InvalidArgument>(HasSubstr("torch dtype ComplexHalf has no ONNX counterpart")));
  EXPECT_THAT([] { (void)to_scalar_type(DType::kString); },
              ThrowsMessage<InvalidArgument>(HasSubstr("dtype string has no torch counterpart")));
}

TEST(TorchDtypes, PromotionIsThatOfTorch) {
  EXPECT_EQ(promote_types(DType::kInt64, DType::kFloat16), DType::kFloat16);
  EXPECT_EQ(promote_types(DType::kFloat16, DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(promote_types(DType::kUint8, DType::kInt8), DType::kInt16);
  EXPECT_EQ(promote_types(DType::kBool, DType::kBool), DType::kBool);
}

TEST(TorchDtypes, DtypesThatTorchDoesNotCombineAreNamed) {
  EXPECT_THAT([] { (void)promote_types(DType::kFloat8E4M3FN, DType::kFloat32); },
              ThrowsMessage<InvalidArgument>(HasSubstr("does not combine dtypes f8e4m3fn and f32")));
}

}  // namespace
}  // namespace exportguard
