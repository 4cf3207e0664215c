#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <limits>

#include "exportguard/common/errors.h"
#include "exportguard/ir/verify.h"
#include "exportguard/serialization/onnx_file.h"
#include "serialization/allowed_nodes.h"
#include "serialization/function_reader.h"
#include "serialization/graph_reader.h"
#include "serialization/mapped_file.h"
#include "serialization/proto_values.h"
#include "serialization/tensor_reader.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

pb::ModelProto parse(std::span<const std::byte> bytes) {
  pb::ModelProto proto;
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw FileError(fmt::format("{} bytes are more than protobuf can hold", bytes.size()));
  }
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  const bool is_whole = proto.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  if (is_whole && proto.has_graph()) return proto;
  throw FileError(fmt::format("the {} bytes are not an ONNX model; are they cut short?", bytes.size()));
}

void add_metadata(const pb::StringStringEntryProto& entry, ir::Model& model) {
  require_text(entry.key());
  require_text(entry.value());
  model.metadata[entry.key()] = entry.value();
}

/// Until version 3 every initializer had to be an input as well, so that nothing told those which may be given.
GraphReader::Defaults defaults_of(const pb::ModelProto& proto) {
  constexpr std::int64_t kFirstThatTells = 4;
  return proto.ir_version() < kFirstThatTells ? GraphReader::Defaults::kConstant : GraphReader::Defaults::kMayBeGiven;
}

/// The version of a domain; of ONNX's own one that is known, since nobody can tell what the operators of others do.
std::int64_t known_version(const pb::OperatorSetIdProto& opset) {
  const std::int64_t version = opset.version();
  if (plain_domain(opset.domain()).empty() && (version < 1 || version > newest_opset())) {
    throw FileError(fmt::format("the model is written for opset {}; known are 1 to {}", version, newest_opset()));
  }
  return version;
}

/// The one of ONNX's own operators that a file without any is written beside: the newest of its format.
std::int64_t opset_of(std::int64_t version) {
  std::int64_t opset = newest_opset();
  while (opset > 1 && ir_version(opset) > version) --opset;
  return opset;
}

ir::Model read(pb::ModelProto& proto, TensorReader& tensors) {
  GraphReader graphs(tensors);
  FunctionReader functions(proto, graphs);
  graphs.set_functions(functions);
  ir::Model model;
  for (const auto& opset : proto.opset_import()) model.opsets[plain_domain(opset.domain())] = known_version(opset);
  model.opsets.try_emplace("", opset_of(proto.ir_version()));
  for (const auto& entry : proto.metadata_props()) add_metadata(entry, model);
  require_allowed_nodes(proto);
  model.producer = proto.producer_name();
  model.producer_version = proto.producer_version();
  model.domain = proto.domain();
  model.version = proto.model_version();
  model.documentation = proto.doc_string();
  model.graph_documentation = proto.graph().doc_string();
  model.graph = graphs.take(*proto.mutable_graph(), defaults_of(proto));
  model.functions = functions.take(proto);
  ir::verify(model);
  return model;
}

}  // namespace

ir::Model load(const fs::path& path) {
  try {
    const MappedFile file(path);
    pb::ModelProto proto = parse(file.bytes());
    TensorReader tensors(path.has_parent_path() ? path.parent_path() : fs::path("."));
    return read(proto, tensors);
  } catch (const FileError& error) {
    throw FileError(fmt::format("cannot load '{}': {}", path.string(), error.what()));
  }
}

ir::Model from_bytes(std::span<const std::byte> bytes) {
  pb::ModelProto proto = parse(bytes);
  TensorReader tensors(std::nullopt);
  return read(proto, tensors);
}

}  // namespace exportguard::serialization
