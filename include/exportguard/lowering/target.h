#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/common/dtypes.h"

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

/// The dtypes of each operator that the target does not run in all of them, in every opset from 18 to 25. What is not
/// in here runs, or nothing is known of it.
std::map<std::string, std::vector<DType>> kernels(Target target);

}  // namespace exportguard::lowering
