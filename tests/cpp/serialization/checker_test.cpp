#include "exportguard/common/errors.h"
#include "serialization/files.h"

namespace exportguard::serialization {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string bytes_of(std::string_view text) { return to_bytes(ir::parse_model(text)); }

TEST(Checker, AnUnknownOperatorIsNamed) {
  const std::string bytes = bytes_of("opset 22\ngraph(%x: f32[2]):\n  %y: f32[2] = NoSuchOperator(%x)\n  return (%y)");
  EXPECT_THAT([&] { check(bytes); }, ThrowsMessage<GraphError>(HasSubstr("No Op registered for NoSuchOperator")));
}

TEST(Checker, AWrongShapeIsFoundByTheFullCheckAlone) {
  const std::string bytes = bytes_of("opset 22\ngraph(%x: f32[2,3]):\n  %y: f32[4] = Relu(%x)\n  return (%y)");
  EXPECT_NO_THROW(check(bytes));
  EXPECT_THROW(check(bytes, true), GraphError);
}

TEST(Checker, BytesThatAreNoModelAreRefused) {
  EXPECT_THAT([] { check("not a model"); }, ThrowsMessage<FileError>(HasSubstr("the 11 bytes are not an ONNX model")));
  EXPECT_THROW(infer_shapes(""), FileError);
}

TEST(Checker, AMissingFileIsNamed) {
  EXPECT_THAT([] { check_file("/no/such/model.onnx"); },
              ThrowsMessage<FileError>(HasSubstr("cannot read '/no/such/model.onnx'")));
}

TEST(ShapeInference, UnknownShapesAreFilledIn) {
  const pb::ModelProto model = parse_proto(infer_shapes(bytes_of(R"(
    opset 22
    graph(%x: f32[batch,3], %w: f32[3,2] = {1, 2, 3, 4, 5, 6}):
      %m = MatMul(%x, %w)
      %y: f32[batch,2] = Relu(%m)
      return (%y))")));
  ASSERT_EQ(model.graph().value_info_size(), 1);
  EXPECT_EQ(model.graph().value_info(0).name(), "m");
  EXPECT_EQ(model.graph().value_info(0).type().tensor_type().shape().dim(0).dim_param(), "batch");
}

TEST(ShapeInference, AContradictionIsAnErrorIfStrict) {
  const std::string bytes = bytes_of(R"(
    opset 22
    graph(%x: f32[2,3], %w: f32[2,2] = {1, 2, 3, 4}):
      %y = MatMul(%x, %w)
      %z: f32[2,2] = Relu(%y)
      return (%z))");
  EXPECT_THAT([&] { (void)infer_shapes(bytes, true); },
              ThrowsMessage<GraphError>(HasSubstr("onnx's shape inference fails")));
}

TEST(Checker, TheNewestOpsetCoversThoseThatAreSupported) { EXPECT_GE(newest_opset(), 25); }

}  // namespace
}  // namespace exportguard::serialization
