#include <array>

#include "lowering/target_facts.h"

/// onnxruntime's CUDA provider, by the table of kernels in its documentation (docs/OperatorKernels.md). What it has no
/// kernel for runs in the CPU provider of the same session, after a copy; so the graph is optimized by the same steps.
namespace exportguard::lowering {
namespace {

constexpr DTypes kReal = {DType::kFloat16, DType::kFloat32, DType::kFloat64};
constexpr DTypes kFloats = kReal | DTypes{DType::kBFloat16};
constexpr DTypes kInts = {DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64};

constexpr std::array kKernels = {
    KernelRow{kFloats | kInts, "Add Sub Mul Div Mod Max Min"},
    KernelRow{kFloats, "MatMul Gemm Relu LayerNormalization"},
    KernelRow{kFloats | DTypes{DType::kInt32, DType::kInt64}, "ReduceSum"},
    KernelRow{kReal, "Erf Elu Selu LeakyRelu HardSigmoid Softplus Softsign PRelu"},
    KernelRow{kReal,
              "Conv ConvTranspose AveragePool GlobalAveragePool GlobalMaxPool InstanceNormalization LSTM GRU RNN LRN"},
    KernelRow{kReal | DTypes{DType::kInt32, DType::kUint8}, "Resize"},
};

}  // namespace

const TargetFacts& onnxruntime_cuda_facts() {
  static const TargetFacts kFacts = {.name = "onnxruntime-cuda",
                                     .kernels = kKernels,
                                     .departures = onnxruntime_cpu_facts().departures,
                                     .others = &onnxruntime_cpu_facts()};
  return kFacts;
}

}  // namespace exportguard::lowering
