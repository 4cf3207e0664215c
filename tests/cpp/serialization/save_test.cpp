#include <fmt/format.h>

#include "exportguard/common/errors.h"
#include "serialization/files.h"

namespace exportguard::serialization {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

using SaveTest = FolderTest;

// y = x + w1 + w2 + …, each weight of `rows` x 64 float32.
ir::Model sum_of(const std::vector<ir::Tensor>& weights) {
  ir::Model model;
  model.opsets[""] = 22;
  const ir::Type type = ir::Type::tensor(DType::kFloat32, ir::Shape{weights.front().shape()[0], 64});
  ir::Value* sum = &model.graph->add_input("x", type);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ir::Value& weight = model.graph->add_initializer(fmt::format("w{}", i), weights[i]);
    sum = &model.graph->append({.op = "Add", .inputs = {sum, &weight}, .outputs = {type}}).output();
  }
  model.graph->add_output(sum, "y");
  return model;
}

ir::Tensor weight(double value, std::int64_t rows) {
  const std::int64_t shape[] = {rows, 64};
  return ir::Tensor::filled(value, DType::kFloat32, shape);
}

std::map<std::string, std::string> external_data(const pb::TensorProto& tensor) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : tensor.external_data()) entries[entry.key()] = entry.value();
  return entries;
}

TEST_F(SaveTest, ASmallModelIsOneFile) {
  save(sum_of({weight(1, 8)}), folder_ / "m.onnx");
  EXPECT_THAT(listing(), ElementsAre("m.onnx"));
  check_file(folder_ / "m.onnx", true);
}

TEST_F(SaveTest, AFileHoldsTheBytesOfTheModel) {
  const ir::Model model = sum_of({weight(1, 8)});
  save(model, folder_ / "m.onnx");
  EXPECT_EQ(read_file(folder_ / "m.onnx"), to_bytes(model));
}

TEST_F(SaveTest, LargeWeightsGoToADataFileAtAlignedOffsets) {
  save(sum_of({weight(1, 8), weight(2, 8)}), folder_ / "m.onnx", {.external_data = ExternalData::kAlways});
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
  check_file(folder_ / "m.onnx", true);
  const pb::GraphProto graph = parse_proto(read_file(folder_ / "m.onnx")).graph();
  auto second = external_data(graph.initializer(1));
  EXPECT_EQ(second["location"], "m.onnx.data");
  EXPECT_EQ(second["offset"], "4096");
  EXPECT_EQ(second["length"], std::to_string(8 * 64 * 4));
  const std::string data = read_file(folder_ / "m.onnx.data");
  EXPECT_EQ(data.size(), 4096U + 8 * 64 * 4);
  EXPECT_EQ(data.substr(4096, 4), std::string("\0\0\0\x40", 4)) << "2.0";
}

TEST_F(SaveTest, SmallTensorsStayInline) {
  save(sum_of({weight(1, 3)}), folder_ / "m.onnx", {.external_data = ExternalData::kAlways});
  EXPECT_THAT(listing(), ElementsAre("m.onnx")) << "768 bytes, the least external size is 1024";
  save(sum_of({weight(1, 4)}), folder_ / "m.onnx", {.external_data = ExternalData::kAlways});
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
}

TEST_F(SaveTest, WeightsAboveTheLimitAreExternalByThemselves) {
  save(sum_of({weight(1, 8)}), folder_ / "m.onnx", {.inline_limit = 100});
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
}

TEST_F(SaveTest, SharedWeightsAreWrittenOnce) {
  const ir::Tensor shared = weight(1, 8);
  save(sum_of({shared, weight(2, 8), shared}), folder_ / "m.onnx", {.external_data = ExternalData::kAlways});
  const pb::GraphProto graph = parse_proto(read_file(folder_ / "m.onnx")).graph();
  EXPECT_EQ(external_data(graph.initializer(0)), external_data(graph.initializer(2)));
  EXPECT_NE(external_data(graph.initializer(0)), external_data(graph.initializer(1)));
  EXPECT_EQ(fs::file_size(folder_ / "m.onnx.data"), 4096U + 8 * 64 * 4);
}

TEST_F(SaveTest, SavingAgainReplacesBothFiles) {
  const SaveOptions external{.external_data = ExternalData::kAlways};
  save(sum_of({weight(1, 16)}), folder_ / "m.onnx", external);
  save(sum_of({weight(2, 8)}), folder_ / "m.onnx", external);
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
  EXPECT_EQ(fs::file_size(folder_ / "m.onnx.data"), 8U * 64 * 4);
  check_file(folder_ / "m.onnx", true);
}

TEST_F(SaveTest, TheDataOfAnEarlierModelGoesOnceNothingReadsIt) {
  save(sum_of({weight(1, 8)}), folder_ / "m.onnx", {.external_data = ExternalData::kAlways});
  save(sum_of({weight(2, 8)}), folder_ / "m.onnx", {.external_data = ExternalData::kNever});
  EXPECT_THAT(listing(), ElementsAre("m.onnx"));
  check_file(folder_ / "m.onnx", true);
}

TEST_F(SaveTest, AFolderWithTheNameOfTheDataStays) {
  fs::create_directory(folder_ / "m.onnx.data");
  save(sum_of({weight(1, 8)}), folder_ / "m.onnx");
  EXPECT_THAT(listing(), ElementsAre("m.onnx", "m.onnx.data"));
}

TEST_F(SaveTest, WeightsOfNestedGraphsAreExternalToo) {
  ir::Model model;
  model.opsets[""] = 22;
  const ir::Type type = ir::Type::tensor(DType::kFloat32, ir::Shape{8, 64});
  ir::Value& p = model.graph->add_input("p", ir::Type::tensor(DType::kBool, ir::Shape{}));
  ir::Node& node = model.graph->append({.op = "If", .inputs = {&p}, .outputs = {type}});
  for (const char* branch : {"then_branch", "else_branch"}) {
    node.set_attribute(branch, std::make_unique<ir::Graph>(branch));
    ir::Graph& body = node.subgraph(branch);
    body.add_output(&body.add_initializer("w", weight(1, 8)));
  }
  model.graph->add_output(&node.output(), "y");
  save(model, folder_ / "m.onnx", {.external_data = ExternalData::kAlways});
  check_file(folder_ / "m.onnx", true);
  EXPECT_EQ(fs::file_size(folder_ / "m.onnx.data"), 4096U + 8 * 64 * 4);
}

TEST_F(SaveTest, AnAlignmentOfZeroIsRefused) {
  EXPECT_THAT([&] { save(sum_of({weight(1, 8)}), folder_ / "m.onnx", {.alignment = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("alignment must be at least 1 byte, got 0")));
}

// Many names for one small block of memory stand for a model of more than 2 GB.
ir::Model larger_than_protobuf_allows() {
  const std::vector<ir::Tensor> shared(9, weight(1, std::int64_t{1} << 20));
  return sum_of(shared);
}

TEST_F(SaveTest, MoreThanTwoGigabytesInlineAreRefusedWithTheRemedy) {
  const ir::Model model = larger_than_protobuf_allows();
  const auto matches = ThrowsMessage<FileError>(HasSubstr("the model takes 2415919104 bytes without external data"));
  EXPECT_THAT([&] { (void)to_bytes(model); }, matches);
  EXPECT_THAT([&] { save(model, folder_ / "m.onnx", {.external_data = ExternalData::kNever}); }, matches);
  EXPECT_TRUE(listing().empty());
}

TEST_F(SaveTest, MoreThanTwoGigabytesAreSavedWithExternalData) {
  save(larger_than_protobuf_allows(), folder_ / "m.onnx");
  EXPECT_EQ(fs::file_size(folder_ / "m.onnx.data"), std::size_t{1} << 28);
  check_file(folder_ / "m.onnx");
}

}  // namespace
}  // namespace exportguard::serialization
