#pragma once

#include <filesystem>
#include <vector>

#include "exportguard/ir/tensor.h"

namespace exportguard::serialization {

/// One call of a model as it was recorded, in the order of its inputs and outputs.
struct RecordedCall {
  std::vector<ir::Tensor> inputs;
  std::vector<ir::Tensor> outputs;
};

/// Reads a file that holds one TensorProto. @throws FileError naming the path and the reason.
ir::Tensor load_tensor(const std::filesystem::path& path);

/// Reads a folder in the layout of onnx's test data: `input_0.pb`, `input_1.pb`, …, `output_0.pb`, …, each one tensor.
/// @throws FileError if there is no output, or a file cannot be read.
RecordedCall load_recorded(const std::filesystem::path& folder);

}  // namespace exportguard::serialization
