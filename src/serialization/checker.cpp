// onnx's own checker and shape inference.
#include <fmt/format.h>
#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/proto_utils.h>
#include <onnx/shape_inference/implementation.h>

#include "exportguard/common/errors.h"
#include "exportguard/serialization/onnx_file.h"

namespace exportguard::serialization {
namespace {

namespace pb = ONNX_NAMESPACE;

pb::ModelProto parse(const std::string& model_bytes) {
  pb::ModelProto proto;
  if (pb::ParseProtoFromBytes(&proto, model_bytes.data(), model_bytes.size()) && proto.has_graph()) return proto;
  throw FileError(fmt::format("the {} bytes are not an ONNX model", model_bytes.size()));
}

// onnx throws several unrelated types; what they say is what the caller needs.
template <typename Action>
auto with_onnx_errors(std::string_view what, Action action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw GraphError(fmt::format("{}: {}", what, error.what()));
  }
}

}  // namespace

void check(const std::string& model_bytes, bool full) {
  const pb::ModelProto proto = parse(model_bytes);
  with_onnx_errors("onnx's checker rejects the model", [&] { pb::checker::check_model(proto, full); });
}

void check_file(const std::filesystem::path& path, bool full) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw FileError(fmt::format("cannot read '{}': {}", path.string(), error ? error.message() : "not a file"));
  }
  with_onnx_errors(fmt::format("onnx's checker rejects '{}'", path.string()),
                   [&] { pb::checker::check_model(path.string(), full); });
}

std::string infer_shapes(const std::string& model_bytes, bool strict) {
  pb::ModelProto proto = parse(model_bytes);
  const pb::ShapeInferenceOptions options(true, strict ? 1 : 0, true);
  with_onnx_errors("onnx's shape inference fails",
                   [&] { pb::shape_inference::InferShapes(proto, pb::OpSchemaRegistry::Instance(), options); });
  return proto.SerializeAsString();
}

int newest_opset() {
  return pb::OpSchemaRegistry::DomainToVersionRange::Instance().LastReleaseVersionMap().at(pb::ONNX_DOMAIN);
}

}  // namespace exportguard::serialization
