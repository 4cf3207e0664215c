#include "exportguard/serialization/onnx_file.h"

#include <fmt/format.h>

#include <limits>

#include "exportguard/common/errors.h"
#include "serialization/data_files.h"
#include "serialization/external_data.h"
#include "serialization/model_writer.h"
#include "serialization/output_file.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestProto = std::numeric_limits<std::int32_t>::max();

void require_protobuf_size(std::size_t bytes) {
  if (bytes <= kLargestProto) return;
  throw FileError(
      fmt::format("the model takes {} bytes without external data, protobuf holds at most {}; save it to a "
                  "file with external data",
                  bytes, kLargestProto));
}

void write_model(const ModelBytes& bytes, OutputFile& file) {
  file.write(bytes.head.data(), bytes.head.size(), 0);
  file.write(bytes.graph.data(), bytes.graph.size(), static_cast<std::int64_t>(bytes.head.size()));
}

void require_valid(const SaveOptions& options) {
  if (options.alignment > 0) return;
  throw InvalidArgument("alignment must be at least 1 byte, got 0; pass 4096 for memory-mapped weights");
}

void require_outputs(const ir::Model& model) {
  for (std::size_t i = 0; i < model.graph->output_count(); ++i) {
    if (model.graph->find_output(i) != nullptr) return;
  }
  throw GraphError("the model has no outputs, and ONNX has no such models; return a tensor from forward");
}

}  // namespace

void save(const ir::Model& model, const fs::path& path, const SaveOptions& options) {
  require_valid(options);
  require_outputs(model);
  const DataFiles data_files(path);
  const fs::path data_path = data_files.next();
  const DataLayout layout(model, options, data_path.filename().string());
  if (layout.is_empty()) require_protobuf_size(inline_bytes(model));
  const ModelBytes bytes = serialize(model, options, layout);
  require_protobuf_size(bytes.size());
  std::vector<OutputFile> files;
  files.reserve(2);
  if (!layout.is_empty()) files.emplace_back(data_path);
  files.emplace_back(path);
  write_model(bytes, files.back());
  if (!layout.is_empty()) layout.write(files.front());
  publish(files);
  data_files.remove_others(layout.is_empty() ? fs::path() : data_path);  // the model that read them is gone
}

std::string to_bytes(const ir::Model& model, const SaveOptions& options) {
  require_outputs(model);
  require_protobuf_size(inline_bytes(model));
  ModelBytes bytes = serialize(model, options, DataLayout());
  require_protobuf_size(bytes.size());
  return std::move(bytes.head.append(bytes.graph));
}

}  // namespace exportguard::serialization
