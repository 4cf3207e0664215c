#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "exportguard/ir/tensor.h"
#include "serialization/mapped_file.h"

namespace exportguard::serialization {

namespace pb = ONNX_NAMESPACE;

/// Reads tensors. Elements in external files are mapped, inline ones are taken out of the proto.
class TensorReader {
 public:
  /// Without a folder, external data is an error.
  explicit TensorReader(std::optional<std::filesystem::path> folder);

  /// Takes the elements out of `proto`, which is left without them.
  /// @throws FileError for sizes that do not fit the elements, unknown dtypes, and external data outside the folder.
  ir::Tensor take(pb::TensorProto& proto);
  /// The same, copying inline elements.
  ir::Tensor copy(const pb::TensorProto& proto);
  /// Made dense. @throws FileError for indices that are out of range or if it would take more than 1 GiB.
  ir::Tensor dense(const pb::SparseTensorProto& proto);

 private:
  struct Range {
    std::string location;
    std::int64_t offset = 0;
    std::optional<std::int64_t> bytes;
  };

  ir::Tensor external(const pb::TensorProto& proto);
  std::shared_ptr<const MappedFile> file(const std::string& location);
  static Range range_of(const pb::TensorProto& proto);

  std::optional<std::filesystem::path> folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace exportguard::serialization
