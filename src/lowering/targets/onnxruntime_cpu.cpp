#include <array>

#include "lowering/target_facts.h"

/// onnxruntime's CPU provider, up to 1.31. A test compares the kernels with those that the installed one registers.
namespace exportguard::lowering {
namespace {

constexpr DTypes kBool = {DType::kBool};
constexpr DTypes kFloat32 = {DType::kFloat32};
constexpr DTypes kFloat64 = {DType::kFloat64};
constexpr DTypes kHalf = {DType::kFloat16, DType::kFloat32};
constexpr DTypes kReal = kHalf | kFloat64;
constexpr DTypes kBytes = {DType::kInt8, DType::kUint8};
constexpr DTypes kCommonInts = {DType::kInt32, DType::kInt64};
constexpr DTypes kWideUnsigned = {DType::kUint32, DType::kUint64};
constexpr DTypes kSigned = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
constexpr DTypes kUnsigned = {DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64};
constexpr DTypes kNumbers = kReal | kSigned | kUnsigned;

constexpr std::array kKernels = {
    KernelRow{kNumbers, "Add Sub Mul Div Mod Abs Sign Less LessOrEqual Greater GreaterOrEqual"},
    KernelRow{kNumbers | kBool, "Equal Expand"},
    KernelRow{kFloat32 | kFloat64 | kSigned | kUnsigned, "Scatter:reduction"},
    KernelRow{kReal | kSigned, "Neg"},
    KernelRow{kReal, "Ceil Floor Round Sqrt Exp Log Reciprocal Sin Cos Tanh Sigmoid Softmax LogSoftmax IsNaN"},
    KernelRow{kHalf,
              "Erf Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Softplus Softsign Elu Selu LeakyRelu HardSigmoid "
              "HardSwish Mish Gelu PRelu"},
    KernelRow{kFloat32, "Celu"},
    KernelRow{kFloat32 | kFloat64, "IsInf"},
    KernelRow{kReal | kCommonInts,
              "Pow CumSum ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare"},
    KernelRow{kReal | kCommonInts | kBool, "Trilu"},
    KernelRow{kReal | kCommonInts | kBytes, "ReduceMax ReduceMin ArgMax ArgMin"},
    KernelRow{kReal | kCommonInts | kBytes | DTypes{DType::kInt16}, "TopK"},
    KernelRow{kReal | DTypes{DType::kInt8, DType::kInt32}, "Relu"},
    KernelRow{kReal | kCommonInts | kBytes | kWideUnsigned, "Max Min Clip"},
    KernelRow{kReal | kCommonInts | kBytes | kWideUnsigned | kBool, "Pad"},
    KernelRow{kHalf | kCommonInts | DTypes{DType::kUint8} | kBool, "NonZero"},
    KernelRow{kReal | DTypes{DType::kInt8, DType::kInt64}, "Unique"},
    KernelRow{kReal | kBytes, "DepthToSpace"},
    KernelRow{kHalf, "Col2Im"},
    KernelRow{kReal | kCommonInts | kBytes | DTypes{DType::kUint32}, "Where"},
    KernelRow{kFloat32 | kFloat64 | DTypes{DType::kInt16} | kCommonInts, "Range"},
    KernelRow{DTypes{DType::kUint8} | kWideUnsigned, "BitShift"},
    KernelRow{kSigned | kUnsigned, "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot"},
    KernelRow{kReal | kCommonInts | kWideUnsigned, "MatMul"},
    KernelRow{kReal | kCommonInts, "Einsum"},
    KernelRow{kReal, "Gemm BatchNormalization RMSNormalization LpNormalization DFT"},
    KernelRow{kReal | DTypes{DType::kBFloat16}, "LayerNormalization"},
    KernelRow{kReal | kBytes, "MaxPool"},
    KernelRow{
        kHalf,
        "Conv ConvTranspose AveragePool GlobalAveragePool GlobalMaxPool LpPool InstanceNormalization LSTM GRU RNN "
        "Det LRN GridSample"},
    KernelRow{kHalf | kBytes | DTypes{DType::kInt32}, "Resize"},
};

/// These move values, and no more than that. A Transpose does, too, but one of bfloat16 next to a Cast ends the process
/// when 1.31 rewrites it for its own layout of pictures.
constexpr std::string_view kBFloat16 =
    "Cast Concat ConstantOfShape Flatten Gather GatherElements GatherND Identity IsInf Reshape ScatterElements "
    "ScatterND Shape Sign Slice Split Squeeze TensorScatter Unsqueeze";

constexpr std::array kDepartures = {
    Departure::kInt64ThroughDoubles,
    Departure::kNoRandomKernelsSince22,
    Departure::kVectorOfTransposed,
    Departure::kEmptyProducts,
    Departure::kPadMergedIntoMaxPool,
    Departure::kPadForgetsAxes,
    Departure::kOutputPaddingBelowStride,
    Departure::kScanOfNothing,
    Departure::kRecurrentOfNothing,
    Departure::kAttentionOfNothing,
    Departure::kAttentionLowestIsHidden,
    Departure::kAttentionMaskOfScores,
    Departure::kProductScaledInFloat32,
    Departure::kFloat16Unrounded,
    Departure::kLogSoftmaxOfInfinity,
    Departure::kGatherOfRange,
    Departure::kLogSumExpBehindInfinity,
    Departure::kLowestInMaxPool,
    Departure::kMergedCasts,
    Departure::kSharedScaleIsLost,
    Departure::kQuotientLosesAxes,
    Departure::kClipOfDoubles,
    Departure::kSecondRoundingIsLost,
    Departure::kInt8StopsIt,
};

}  // namespace

const TargetFacts& onnxruntime_cpu_facts() {
  static constexpr TargetFacts kFacts = {
      .name = "onnxruntime-cpu", .kernels = kKernels, .departures = kDepartures, .bfloat16 = kBFloat16};
  return kFacts;
}

}  // namespace exportguard::lowering
