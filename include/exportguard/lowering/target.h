#pragma once

#include <cstdint>
#include <string_view>

namespace exportguard::lowering {

/// What the model is written for: which operators of ONNX it has kernels for, in which dtypes. Every target reads the
/// standard; it decides between forms that mean the same.
enum class Target : std::uint8_t {
  kOnnx,            ///< the standard alone, as if there were a kernel for everything that it allows
  kOnnxRuntimeCpu,  ///< onnxruntime's CPU provider
  kOnnxRuntimeCuda,
};

std::string_view name(Target target);  ///< `onnx`, `onnxruntime-cpu`, `onnxruntime-cuda`

/// Inverse of `name`. @throws InvalidArgument for another text, with those that there are.
Target target(std::string_view text);

}  // namespace exportguard::lowering
