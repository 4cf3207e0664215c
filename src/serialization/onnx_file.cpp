#include "exportguard/serialization/onnx_file.h"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <exception>
#include <limits>

#include "exportguard/common/errors.h"
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

// Lets protobuf write into an OutputFile. An exception must not cross protobuf: it waits until protobuf has returned.
class FileStream : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit FileStream(OutputFile& file) : file_(file) {}

  bool Write(const void* data, int size) override {
    try {
      file_.write(data, static_cast<std::size_t>(size), offset_);
    } catch (const FileError&) {
      error_ = std::current_exception();
      return false;
    }
    offset_ += size;
    return true;
  }

  void rethrow_error() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  OutputFile& file_;
  std::int64_t offset_ = 0;
  std::exception_ptr error_;
};

void write_proto(const ONNX_NAMESPACE::ModelProto& proto, OutputFile& file) {
  require_protobuf_size(proto.ByteSizeLong());
  FileStream stream(file);
  google::protobuf::io::CopyingOutputStreamAdaptor adaptor(&stream);
  const bool is_written = proto.SerializeToZeroCopyStream(&adaptor) && adaptor.Flush();
  stream.rethrow_error();
  if (!is_written) throw FileError(fmt::format("cannot write '{}': protobuf failed", file.path().string()));
}

// A model has some ten messages a node: memory that is taken and given back in large blocks halves the time.
google::protobuf::ArenaOptions large_blocks() {
  google::protobuf::ArenaOptions options;
  options.start_block_size = std::size_t{1} << 16;
  options.max_block_size = std::size_t{1} << 20;
  return options;
}

void require_valid(const SaveOptions& options) {
  if (options.alignment > 0) return;
  throw InvalidArgument("alignment must be at least 1 byte, got 0; pass 4096 for memory-mapped weights");
}

}  // namespace

void save(const ir::Model& model, const fs::path& path, const SaveOptions& options) {
  require_valid(options);
  fs::path data_path = path;
  data_path += ".data";
  const DataLayout layout(model, options, data_path.filename().string());
  if (layout.is_empty()) require_protobuf_size(inline_bytes(model));
  google::protobuf::Arena arena(large_blocks());
  const ONNX_NAMESPACE::ModelProto& proto = to_proto(model, options, layout, arena);
  std::vector<OutputFile> files;
  files.reserve(2);
  if (!layout.is_empty()) files.emplace_back(data_path);
  files.emplace_back(path);
  write_proto(proto, files.back());
  if (!layout.is_empty()) layout.write(files.front());
  publish(files);
  if (layout.is_empty()) remove_old(data_path);  // the model that read it is gone
}

std::string to_bytes(const ir::Model& model, const SaveOptions& options) {
  require_protobuf_size(inline_bytes(model));
  google::protobuf::Arena arena(large_blocks());
  const ONNX_NAMESPACE::ModelProto& proto = to_proto(model, options, DataLayout(), arena);
  require_protobuf_size(proto.ByteSizeLong());
  return proto.SerializeAsString();
}

}  // namespace exportguard::serialization
