#include "exportguard/common/errors.h"
#include "serialization/files.h"

namespace exportguard::serialization {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

std::vector<std::string> names_of(const auto& list) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.name());
  return names;
}

std::vector<std::string> texts(const auto& list) { return {list.begin(), list.end()}; }

std::vector<std::string> operators(const pb::GraphProto& graph) {
  std::vector<std::string> types;
  for (const auto& node : graph.node()) types.push_back(node.op_type());
  return types;
}

std::string dims(const pb::ValueInfoProto& value) {
  std::string text;
  for (const auto& dim : value.type().tensor_type().shape().dim()) {
    text += dim.has_dim_value() ? std::to_string(dim.dim_value()) : dim.dim_param();
    text += ';';
  }
  return text;
}

TEST(GraphWriter, SymbolicShapesBecomeDimensionNames) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[batch,past + seq,3]):
      %t: f32[batch,past + seq,3] = Relu(%x)
      %y: f32[batch,past + seq,3] = Neg(%t)
      return (%y))");
  EXPECT_EQ(dims(model.graph().input(0)), "batch;past + seq;3;");
  EXPECT_EQ(dims(model.graph().output(0)), "batch;past + seq;3;");
  EXPECT_THAT(names_of(model.graph().value_info()), ElementsAre("t")) << "outputs are described as outputs";
  EXPECT_EQ(dims(model.graph().value_info(0)), "batch;past + seq;3;");
}

TEST(GraphWriter, PiecesOfALargeGraphAreOneGraph) {
  ir::Model model;
  model.opsets[""] = 22;
  ir::Value* last = &model.graph->add_input("x", ir::Type::tensor(DType::kFloat32, ir::Shape{2}));
  for (int k = 0; k < 200; ++k) {
    ir::NodeSpec spec;
    spec.op = k % 2 == 0 ? "Neg" : "Abs";
    spec.inputs = {last};
    spec.outputs = {last->type()};
    last = &model.graph->append(std::move(spec)).output();
  }
  model.graph->add_output(last, "y");
  const pb::ModelProto proto = parse_proto(to_bytes(model));
  ASSERT_EQ(proto.graph().node_size(), 200);
  EXPECT_EQ(proto.graph().name(), "main");
  EXPECT_EQ(proto.graph().value_info_size(), 199);
  for (int k = 1; k < 200; ++k) EXPECT_EQ(proto.graph().node(k).input(0), proto.graph().node(k - 1).output(0));
  EXPECT_EQ(proto.graph().node(199).output(0), "y");
}

TEST(GraphWriter, InputsOutputsAndInitializersKeepTheirNames) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[2], %w: f32[2] = {1, 2}):
      %w_1: f32[2] = Add(%x, %w)
      %y: f32[2] = Mul(%w_1, %w)
      return (%y as logits))");
  EXPECT_THAT(names_of(model.graph().input()), ElementsAre("x"));
  EXPECT_THAT(names_of(model.graph().initializer()), ElementsAre("w"));
  EXPECT_THAT(names_of(model.graph().output()), ElementsAre("logits"));
  EXPECT_THAT(texts(model.graph().node(1).output()), ElementsAre("logits")) << "the value is renamed, nothing is added";
}

TEST(GraphWriter, TheNameOfAnOutputWinsOverAHint) {
  ir::Model model = ir::parse_model(R"(
    opset 22
    graph(%x: f32[2]):
      %a: f32[2] = Relu(%x)
      %b: f32[2] = Neg(%a)
      return (%b as a))");
  const pb::GraphProto graph = parse_proto(to_bytes(model)).graph();
  EXPECT_THAT(names_of(graph.output()), ElementsAre("a"));
  EXPECT_THAT(texts(graph.node(0).output()), ElementsAre("a_1"));
}

TEST(GraphWriter, AnOutputThatIsAnInputOrAConstantOrListedTwiceGetsAnIdentity) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[2], %w: f32[2] = {1, 2}):
      %y: f32[2] = Add(%x, %w)
      return (%x as same, %w as weight, %y as first, %y as second))");
  EXPECT_THAT(operators(model.graph()), ElementsAre("Add", "Identity", "Identity", "Identity"));
  EXPECT_THAT(names_of(model.graph().output()), ElementsAre("same", "weight", "first", "second"));
  EXPECT_THAT(texts(model.graph().node(3).input()), ElementsAre("first"));
}

TEST(GraphWriter, AnInputThatIsAnOutputKeepsItsName) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[2]):
      return (%x))");
  EXPECT_THAT(names_of(model.graph().input()), ElementsAre("x"));
  EXPECT_THAT(names_of(model.graph().output()), ElementsAre("x"));
  EXPECT_EQ(model.graph().node_size(), 0);
}

TEST(GraphWriter, AnInputThatIsAnOutputTwiceHasANameForEach) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[2]):
      return (%x, %x))");
  EXPECT_THAT(names_of(model.graph().output()), ElementsAre("x", "x_1"));
  EXPECT_EQ(model.graph().node_size(), 1);
}

TEST(GraphWriter, NestedGraphsSeeOuterValuesUnderTheirFinalNames) {
  ir::Model model;
  model.opsets[""] = 22;
  ir::Graph& graph = *model.graph;
  ir::Value& p = graph.add_input("p", ir::Type::tensor(DType::kBool, ir::Shape{}));
  ir::Value& x = graph.add_input("x", ir::Type::tensor(DType::kFloat32, ir::Shape{2}));
  const ir::Type type = x.type();
  ir::Value& h = graph.append({.op = "Relu", .inputs = {&x}, .outputs = {type}, .name = "relu"}).output();
  h.set_name("h");
  ir::Node& branch = graph.append({.op = "If", .inputs = {&p}, .outputs = {type}});
  branch.set_attribute("then_branch", std::make_unique<ir::Graph>("then"));
  branch.set_attribute("else_branch", std::make_unique<ir::Graph>("else"));
  ir::Graph& then_graph = branch.subgraph("then_branch");
  ir::Value& inner = then_graph.append({.op = "Neg", .inputs = {&h}, .outputs = {type}}).output();
  inner.set_name("h");
  then_graph.add_output(&inner);
  branch.subgraph("else_branch").add_output(&h);
  graph.add_output(&branch.output(), "y");
  graph.add_output(&h, "hidden");

  const std::string bytes = to_bytes(model);
  check(bytes, true);
  const pb::GraphProto proto = parse_proto(bytes).graph();
  const pb::GraphProto& then_proto = proto.node(1).attribute(0).g();
  EXPECT_THAT(texts(then_proto.node(0).input()), ElementsAre("hidden"));
  EXPECT_THAT(names_of(then_proto.output()), ElementsAre("h")) << "the outer h is called hidden, so the name is free";
  const pb::GraphProto& else_proto = proto.node(1).attribute(1).g();
  EXPECT_THAT(operators(else_proto), ElementsAre("Identity")) << "a branch must make its output itself";
  EXPECT_THAT(texts(else_proto.node(0).input()), ElementsAre("hidden"));
}

TEST(GraphWriter, LocalFunctionsCarryTheirOpsetsAndConstants) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[2]):
      %y: f32[2] = my.ops::twice(%x)
      return (%y)
    function my.ops::twice(%a, %two: f32[] = {2}):
      %b = Mul(%a, %two)
      return (%b))");
  ASSERT_EQ(model.functions_size(), 1);
  const pb::FunctionProto& function = model.functions(0);
  EXPECT_EQ(function.domain() + "." + function.name(), "my.ops.twice");
  EXPECT_EQ(function.input_size(), 1);
  EXPECT_EQ(function.node(0).op_type(), "Constant");
  EXPECT_EQ(function.opset_import(0).version(), 22);
  std::map<std::string, std::int64_t> opsets;
  for (const auto& import : model.opset_import()) opsets[import.domain()] = import.version();
  EXPECT_THAT(opsets, UnorderedElementsAre(Pair("", 22), Pair("my.ops", 1)));
}

TEST(GraphWriter, NodesCarryTheSourceOfTheUsersModel) {
  ir::Model model = ir::parse_model(R"(
    opset 22
    graph(%x: f32[2]):
      %y: f32[2] = Relu(%x)
      return (%y))");
  model.graph->first()->set_source(ir::intern(
      {.target = "aten.relu.default", .module = "layers.3.mlp", .type = "Mlp", .file = "model.py", .line = 12}));
  const pb::ModelProto proto = parse_proto(to_bytes(model));
  std::map<std::string, std::string> properties;
  for (const auto& entry : proto.graph().node(0).metadata_props()) properties[entry.key()] = entry.value();
  EXPECT_THAT(
      properties,
      UnorderedElementsAre(Pair("exportguard.target", "aten.relu.default"), Pair("exportguard.module", "layers.3.mlp"),
                           Pair("exportguard.class", "Mlp"), Pair("exportguard.source", "model.py:12")));
  EXPECT_EQ(parse_proto(to_bytes(model, {.sources = false})).graph().node(0).metadata_props_size(), 0);
}

TEST(GraphWriter, OperandsThatAreLeftOutAreEmptyNamesOrDropped) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[4], %high: f32[] = {1}):
      %y: f32[4] = Clip(%x, _, %high)
      %z: f32[4] = Clip(%y, _, _)
      return (%z))");
  EXPECT_THAT(texts(model.graph().node(0).input()), ElementsAre("x", "", "high"));
  EXPECT_THAT(texts(model.graph().node(1).input()), ElementsAre("y"));
}

TEST(GraphWriter, EveryKindOfTensorIsStoredAsOnnxWants) {
  ir::Model model;
  model.opsets[""] = 23;
  const std::int64_t three[] = {3};
  const auto add = [&](const std::string& name, const ir::Tensor& tensor) {
    model.graph->add_output(&model.graph->add_initializer(name, tensor), name + "_out");
  };
  add("bool", ir::Tensor::scalar(std::int64_t{1}, DType::kBool));
  add("int4", ir::Tensor::filled(-2, DType::kInt4, three));
  add("uint4", ir::Tensor::filled(9, DType::kUint4, three));
  add("bf16", ir::Tensor::filled(1, DType::kBFloat16, three));
  add("f8", ir::Tensor::filled(1, DType::kFloat8E4M3FN, three));
  add("c64", ir::Tensor::filled(1, DType::kComplex64, three));
  add("text", ir::Tensor::strings({"a", ""}));
  const std::string bytes = to_bytes(model);
  check(bytes, true);
  const pb::ModelProto proto = parse_proto(bytes);
  std::map<std::string, pb::TensorProto> tensors;
  for (const pb::TensorProto& tensor : proto.graph().initializer()) tensors[tensor.name()] = tensor;
  EXPECT_EQ(tensors["bool"].raw_data(), std::string("\x01", 1));
  EXPECT_EQ(tensors["int4"].raw_data(), "\xEE\x0E") << "-2 is 0xE; the last half byte is zero";
  EXPECT_EQ(tensors["uint4"].raw_data(), "\x99\x09");
  EXPECT_EQ(tensors["bf16"].raw_data(), std::string("\x80\x3F\x80\x3F\x80\x3F", 6));
  EXPECT_EQ(tensors["f8"].raw_data(), "\x38\x38\x38");
  EXPECT_EQ(tensors["c64"].raw_data().size(), 24U);
  EXPECT_THAT(texts(tensors["text"].string_data()), ElementsAre("a", ""));
}

TEST(GraphWriter, ATensorWithoutElementsKeepsItsShape) {
  const pb::ModelProto model = proto_of(R"(
    opset 22
    graph(%x: f32[2,3], %w: f32[0,3] = {}):
      %y: f32[2,3] = Concat(%x, %w) {axis=0}
      return (%y))");
  EXPECT_THAT(model.graph().initializer(0).dims(), ElementsAre(0, 3));
  EXPECT_TRUE(model.graph().initializer(0).has_raw_data());
}

TEST(GraphWriter, TheIrVersionBelongsToTheOpset) {
  const auto version = [](int opset) {
    ir::Model model = ir::parse_model("graph(%x: f32[2]):\n  %y: f32[2] = Relu(%x)\n  return (%y)");
    model.opsets[""] = opset;
    return parse_proto(to_bytes(model)).ir_version();
  };
  EXPECT_EQ(version(18), 10);
  EXPECT_EQ(version(22), 10);
  EXPECT_EQ(version(23), 11);
  EXPECT_EQ(version(24), 12);
  EXPECT_EQ(version(25), 13);
}

TEST(GraphWriter, TorchLevelNodesAreRefusedWithTheirNames) {
  const ir::Model model = ir::parse_model(R"(
    opset 22
    graph(%x: f32[2]):
      %y: f32[2] = aten.relu.default(%x)
      return (%y))");
  EXPECT_THAT([&] { (void)to_bytes(model); },
              ThrowsMessage<GraphError>(HasSubstr("1 torch-level nodes are left, lower the model before saving it: "
                                                  "aten.relu.default")));
}

TEST(GraphWriter, AModelWithoutAnOpsetIsRefused) {
  const ir::Model model = ir::parse_model("graph(%x: f32[2]):\n  return (%x)");
  EXPECT_THAT([&] { (void)to_bytes(model); },
              ThrowsMessage<GraphError>(HasSubstr("the model names no version of the ONNX domain")));
}

TEST(GraphWriter, MetadataAndProducerAreWritten) {
  ir::Model model = ir::parse_model("opset 22\ngraph(%x: f32[2]):\n  %y: f32[2] = Relu(%x)\n  return (%y)");
  model.metadata["task"] = "text-generation";
  model.producer_version = "1.2";
  const pb::ModelProto proto = parse_proto(to_bytes(model));
  EXPECT_EQ(proto.producer_name() + " " + proto.producer_version(), "exportguard 1.2");
  EXPECT_EQ(proto.metadata_props(0).key() + "=" + proto.metadata_props(0).value(), "task=text-generation");
}

}  // namespace
}  // namespace exportguard::serialization
