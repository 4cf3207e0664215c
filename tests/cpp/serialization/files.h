#pragma once

#include <gmock/gmock.h>
#include <onnx/onnx_pb.h>
#include <onnx/proto_utils.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "exportguard/ir/text.h"
#include "exportguard/serialization/onnx_file.h"

namespace exportguard::serialization {

namespace fs = std::filesystem;
namespace pb = ONNX_NAMESPACE;

inline pb::ModelProto parse_proto(const std::string& bytes) {
  pb::ModelProto proto;
  EXPECT_TRUE(pb::ParseProtoFromBytes(&proto, bytes.data(), bytes.size()));
  return proto;
}

/// The proto of a model in the text format, through its bytes; checked by onnx's checker.
inline pb::ModelProto proto_of(std::string_view text, const SaveOptions& options = {}) {
  const std::string bytes = to_bytes(ir::parse_model(text), options);
  check(bytes, true);
  return parse_proto(bytes);
}

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// A folder that lives as long as the test.
class FolderTest : public testing::Test {
 protected:
  FolderTest() : folder_(fs::path(testing::TempDir()) / ("exportguard_test_" + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
  }
  ~FolderTest() override { fs::remove_all(folder_); }

  std::set<std::string> listing() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename());
    return names;
  }

  const fs::path folder_;
};

}  // namespace exportguard::serialization
