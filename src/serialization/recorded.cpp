#include "exportguard/serialization/recorded.h"

#include <fmt/format.h>

#include <fstream>

#include "exportguard/common/errors.h"
#include "serialization/tensor_reader.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

std::vector<ir::Tensor> load_numbered(const fs::path& folder, std::string_view what) {
  std::vector<ir::Tensor> tensors;
  for (;;) {
    const fs::path path = folder / fmt::format("{}_{}.pb", what, tensors.size());
    if (!fs::exists(path)) return tensors;
    tensors.push_back(load_tensor(path));
  }
}

}  // namespace

ir::Tensor load_tensor(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(fmt::format("cannot read {}: it is missing or no file", path.string()));
  pb::TensorProto proto;
  if (!proto.ParseFromIstream(&file)) {
    throw FileError(fmt::format("cannot read {}: it is no whole TensorProto", path.string()));
  }
  try {
    return TensorReader(std::nullopt).take(proto);
  } catch (const FileError& error) {
    throw FileError(fmt::format("cannot read {}: {}", path.string(), error.what()));
  }
}

RecordedCall load_recorded(const fs::path& folder) {
  RecordedCall call{load_numbered(folder, "input"), load_numbered(folder, "output")};
  if (call.outputs.empty()) {
    throw FileError(fmt::format("{} holds no recorded call: there is no output_0.pb", folder.string()));
  }
  return call;
}

}  // namespace exportguard::serialization
