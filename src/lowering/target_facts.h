#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "exportguard/common/dtypes.h"
#include "exportguard/lowering/target.h"

/// What a target runs, and where it departs from the standard: the data that is asked where two forms mean the same. A
/// lowering names what it needs, never a runtime; a new target is a file in `targets/` and a row in `target.cpp`.
namespace exportguard::lowering {

/// A set of dtypes, one bit each.
class DTypes {
 public:
  constexpr DTypes() = default;
  constexpr DTypes(std::initializer_list<DType> dtypes) {
    for (const DType dtype : dtypes) bits_ |= bit(dtype);
  }
  constexpr bool has(DType dtype) const { return (bits_ & bit(dtype)) != 0; }
  constexpr DTypes operator|(DTypes other) const { return DTypes(bits_ | other.bits_); }

 private:
  explicit constexpr DTypes(unsigned bits) : bits_(bits) {}
  static constexpr unsigned bit(DType dtype) { return 1U << static_cast<unsigned>(dtype); }

  unsigned bits_ = 0;
};

/// The dtypes that some operators have a kernel for, at every opset from 18 to 25.
struct KernelRow {
  DTypes dtypes;
  std::string_view ops;  ///< names with blanks between them; `Scatter:reduction` is one that reduces
};

/// Where a target gives, for the plain form of something, another result than the standard, or none.
enum class Departure : std::uint8_t {
  kInt64ThroughDoubles,       ///< Max, Min, Clip, ReduceSum, ReduceProd and Pow of int64 are not exact
  kNoRandomKernelsSince22,    ///< RandomUniformLike and RandomNormalLike run up to opset 21 alone
  kVectorOfTransposed,        ///< a transposed matrix times a vector becomes the matrix times the vector
  kEmptyProducts,             ///< products of matrices without elements are what the memory held, or end the process
  kPadMergedIntoMaxPool,      ///< a Pad with zeros becomes the padding of a MaxPool, which is minus infinity
  kPadForgetsAxes,            ///< a Transpose moved past a Pad leaves the axes of the Pad as they were
  kOutputPaddingBelowStride,  ///< ConvTranspose refuses an output padding as large as the stride
  kScanOfNothing,             ///< Scan needs a slice
  kRecurrentOfNothing,        ///< LSTM and GRU of no sequence or no step end the process
  kAttentionOfNothing,        ///< Attention needs a key
  kAttentionLowestIsHidden,   ///< Attention takes the smallest finite number of a mask for minus infinity
  kProductScaledInFloat32,    ///< a product of float64 matrices times a number is scaled by that number as a float32
  kAttentionMaskOfScores,     ///< Attention broadcasts a mask over samples and heads alone
  kLogSoftmaxOfInfinity,      ///< LogSoftmax of float64 numbers gives NaN where they are infinite, not beside them
  kGatherOfRange,             ///< a Gather by a Range becomes a Slice: other positions below 0, no error beyond the end
  kLogSumExpBehindInfinity,   ///< ReduceLogSumExp loses numbers below -88 behind minus infinity
  kLowestInMaxPool,           ///< a MaxPool of minus infinity alone is the lowest finite number
  kMergedCasts,               ///< a float cast to int64 and then to fewer bits is cast at once, which cuts it off
  kSharedScaleIsLost,     ///< a scale of a scaled tensor, both before products of matrices, ends in a missing tensor
  kQuotientLosesAxes,     ///< `ones(1, 1) / x * y` becomes `y / x`, with fewer axes
  kClipOfDoubles,         ///< a Clip of float64 behind a Relu is not loaded
  kSecondRoundingIsLost,  ///< of two pairs of QuantizeLinear and DequantizeLinear in a row one is left
  kInt8StopsIt,           ///< a DequantizeLinear of int8 before what moves values is not loaded since opset 21
  kFloat16Unrounded,      ///< float16 is computed in float32, and handed on so where no Cast of the model rounds it
};

struct TargetFacts {
  std::string_view name;
  bool runs_all = false;               ///< a kernel for everything that the standard allows
  std::span<const KernelRow> kernels;  ///< operators that are in no row run in every dtype
  std::span<const Departure> departures;
  const TargetFacts* others = nullptr;  ///< who runs what this one has no kernel for
  /// The operators with a kernel for bfloat16, at every opset from 18 to 25, with blanks between them; all others are
  /// computed in float32. Empty: nothing is known of it.
  std::string_view bfloat16 = {};
};

// The targets, each with its tables in `targets/<name>.cpp`.
const TargetFacts& onnx_facts();
const TargetFacts& onnxruntime_cpu_facts();
const TargetFacts& onnxruntime_cuda_facts();

const TargetFacts& facts(Target target);

bool departs(Target target, Departure departure);

/// Whether an operator is among those with a kernel for bfloat16.
bool carries_bfloat16(const TargetFacts& target, std::string_view op);

/// Whether the target runs the operator in that dtype; also where nothing is known of the operator.
bool has_kernel(Target target, std::string_view op, DType dtype);

}  // namespace exportguard::lowering
