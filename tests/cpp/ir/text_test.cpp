#include "exportguard/ir/text.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "exportguard/common/errors.h"
#include "graph_building.h"

namespace exportguard::ir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  std::string name;
  std::string text;
};

void PrintTo(const Case& example, std::ostream* out) { *out << example.name; }

std::string case_name(const testing::TestParamInfo<Case>& tested) { return tested.param.name; }

/// `(parameters):` and lines, each indented as the printer does.
std::string in_graph(const std::string& parameters, const std::string& lines) {
  return "graph(" + parameters + "):\n" + lines + "\n";
}

class RoundTrip : public testing::TestWithParam<Case> {};

TEST_P(RoundTrip, GivesTheSameText) { EXPECT_EQ(normalize(GetParam().text), GetParam().text); }

INSTANTIATE_TEST_SUITE_P(
    Graphs, RoundTrip,
    testing::Values(Case{"Empty", in_graph("", "  return ()")},
                    Case{"InputsAndTypes", in_graph("%x: f32[2,3], %y: i64[], %z", "  return (%x, %y, %z)")},
                    Case{"LeftOutOperands", in_graph("%x: f32[2]", "  %y = Clip(%x, _, %x)\n  return (%y)")},
                    Case{"SeveralOutputs",
                         in_graph("%x: f32[2]", "  %v: f32[1], %i: i64[1] = TopK(%x)\n  return (%i, _, %v as top)")},
                    Case{"NoOutputs",
                         in_graph("%x: bool[]", "  aten._assert_async.msg(%x, \"must hold\")\n  return ()")},
                    Case{"UnnamedValues", in_graph("%0: f32[2]", "  %1 = Neg(%0)\n  %2, %3 = TopK(%1)\n  return (%3)")},
                    Case{"DottedNames", in_graph("%past_key_values.0.key: f32[2]",
                                                 "  return (%past_key_values.0.key as present.0.key)")},
                    Case{"OddNames", in_graph("%\"a b\": f32[2], %\"0\", %\"\\\"\\\\\", %0",
                                              "  return (%\"a b\" as \"c d\", %0 as \"1\")")},
                    Case{"OtherDomain", in_graph("%x: f32[2]", "  %y = com.microsoft::Gelu(%x)\n  return (%y)")},
                    Case{"OddOperators", in_graph("",
                                                  "  %a = \"my domain\"::Op()\n  %b = ::return()\n  %c = ::a.b()\n"
                                                  "  %d = \"a.b\".\"c\"()\n  return ()")}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Types, RoundTrip,
    testing::Values(Case{"UnknownRank", in_graph("%x: f32[*]", "  return (%x)")},
                    Case{"SymbolicSizes",
                         in_graph("%x: f16[batch,seq + 1,8], %y: i64[2*seq,FloorDiv(seq, 2),Max(a, b)]",
                                  "  return (%x)")},
                    Case{"Scalars", in_graph("%i: int, %f: float, %b: bool, %h: scalar(f64)", "  return (%i)")},
                    Case{"ScalarsWithValues", in_graph("%i: int{past + seq}, %j: int{3}", "  return (%i)")},
                    Case{"BoolTensors", in_graph("%x: bool[], %y: bool[*], %z: bool[2]", "  return (%x)")},
                    Case{"Sequences", in_graph("%s: seq(f32[2,n]), %o: optional(i64[*])", "  return (%s, %o)")}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Initializers, RoundTrip,
    testing::Values(Case{"Floats", in_graph("%w: f32[2,2] = {0.1, -2.5, 1.0, 1e+20}", "  return (%w)")},
                    Case{"NotNumbers", in_graph("%w: f32[3] = {nan, inf, -inf}", "  return (%w)")},
                    Case{"NegativeZero", in_graph("%w: f32[1] = {-0.0}", "  return (%w)")},
                    Case{"HalfFloats", in_graph("%a: f16[2] = {0.5, 65504.0}, %b: bf16[1] = {3.0}", "  return (%a)")},
                    Case{"Doubles", in_graph("%w: f64[1] = {0.1234567890123}", "  return (%w)")},
                    Case{"Float8", in_graph("%a: f8e4m3fn[1] = {448.0}, %b: f8e5m2[1] = {0.5}", "  return (%a)")},
                    Case{"Integers",
                         in_graph("%a: i64[1] = {-9223372036854775808}, %b: u8[2] = {0, 255}, %c: i8[1] = {-128}",
                                  "  return (%a)")},
                    Case{"FourBits", in_graph("%a: i4[2] = {-8, 7}, %b: u4[1] = {15}", "  return (%a)")},
                    Case{"Bools", in_graph("%w: bool[2] = {true, false}", "  return (%w)")},
                    Case{"Strings", in_graph("%w: string[3] = {\"a\", \"\", \"b, \\\"c\\\"\"}", "  return (%w)")},
                    Case{"Complex", in_graph("%w: c64[2] = {complex(1.0, -2.0), complex(nan, inf)}", "  return (%w)")},
                    Case{"RankZero", in_graph("%w: f32[] = {3.0}", "  return (%w)")},
                    Case{"NoElements", in_graph("%w: f32[0,4] = {}", "  return (%w)")},
                    Case{"ScalarConstant", in_graph("%w: int = {3}", "  return (%w)")}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Arguments, RoundTrip,
    testing::Values(
        Case{"Numbers", in_graph("%x", "  %y = aten.f.default(%x, 1, -1, 2.0, 1e-05, nan, inf, -inf)\n  return (%y)")},
        Case{"Words", in_graph("%x", "  %y = aten.f.default(None, true, false, dtype:bf16)\n  return (%y)")},
        Case{"Symbols",
             in_graph("%x", "  %y = aten.f.default(@cpu, @cuda:0, @contiguous_format, @\"a b\")\n  return (%y)")},
        Case{"Strings", in_graph("%x", "  %y = aten.f.default(\"tanh\", \"\\n\\t\\r\\\"\\\\\\x01\")\n  return (%y)")},
        Case{"Complex", in_graph("%x", "  %y = aten.f.default(complex(1.0, -0.5))\n  return (%y)")},
        Case{"Lists", in_graph("%x", "  %y = aten.cat.default([%x, _, [1, %x]], [], [None])\n  return (%y)")},
        Case{"OperandsThatNoArgumentNames",
             in_graph("%x, %y", "  %z = higher_order.cond(%x; %y, _)\n  %w = aten.f.default(; %x)\n  return (%z)")}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Attributes, RoundTrip,
    testing::Values(
        Case{"Numbers", in_graph("%x", "  %y = F(%x) {axis=-1, alpha=1.0, beta=-inf}\n  return (%y)")},
        Case{"Strings", in_graph("%x", "  %y = F(%x) {mode=\"linear\", \"odd name\"=\"\"}\n  return (%y)")},
        Case{"Lists", in_graph("%x", "  %y = F(%x) {a=[1, -2], b=[1.0, nan], c=[\"x\", \"y\"]}\n  return (%y)")},
        Case{"EmptyLists", in_graph("%x", "  %y = F(%x) {a=[], b=floats[], c=strings[]}\n  return (%y)")},
        Case{"Tensors", in_graph("", "  %y = Constant() {value=f32[2]{1.0, 2.0}}\n  return (%y)")},
        Case{"Types", in_graph("", "  %y = F() {a=type:seq(f32[n]), b=type:int{n + 1}}\n  return (%y)")},
        Case{"NestedGraphs", in_graph("%x: f32[2], %p: bool[]",
                                      "  %o = If(%p) {then_branch=graph(%k: i64[1] = {1}):\n"
                                      "      %a = Add(%x, %k)\n"
                                      "      %b = If(%p) {then_branch=graph():\n"
                                      "          return (%a), else_branch=graph():\n"
                                      "          return (%x)}\n"
                                      "      return (%b), else_branch=graph():\n"
                                      "      return (%x), axis=1}\n"
                                      "  return (%o)")},
        Case{"LoopBodies", in_graph("%n: i64[], %x: f32[2]",
                                    "  %o = Loop(%n, _, %x) {body=graph(%i: i64[], %c: bool[], %s: f32[2]):\n"
                                    "      %t: f32[2] = Add(%s, %x)\n"
                                    "      return (%c, %t)}\n"
                                    "  return (%o)")}),
    case_name);

// ------------------------------------------------------------------------------------------------ reading

TEST(ParseGraph, ReadsCommentsAndAnyLayout) {
  EXPECT_EQ(normalize("graph(%x:f32[ 2 , n+1 ]) : # inputs\n\n%y=Neg( %x )#node\nreturn(%y)"),
            in_graph("%x: f32[2,n + 1]", "  %y = Neg(%x)\n  return (%y)"));
}

TEST(ParseGraph, TellsTheLevelsApartByTheName) {
  const auto graph =
      parse_graph("graph(): %a = aten.add.Tensor(1, 2) %b = ai.onnx.ml::Scaler() %c = MatMul() return ()");
  const Node& torch = *graph->first();
  EXPECT_TRUE(torch.is_torch() && torch.is("aten", "add.Tensor"));
  EXPECT_TRUE(!torch.next()->is_torch() && torch.next()->is("ai.onnx.ml", "Scaler"));
  EXPECT_TRUE(!graph->last()->is_torch() && graph->last()->is("", "MatMul"));
}

TEST(ParseGraph, MakesAnOperandOfEachValueAmongTheArguments) {
  const auto graph = parse_graph("graph(%x, %y): %z = aten.cat.default([%y, %x], 1, %y) return (%z)");
  const Node& node = *graph->first();
  const Argument::List list = {{Argument::Operand{0}}, {Argument::Operand{1}}};
  EXPECT_EQ(node.arguments()[0], Argument{list});
  EXPECT_EQ(node.arguments()[1], Argument{std::int64_t{1}});
  EXPECT_EQ(node.arguments()[2], Argument{Argument::Operand{2}});
  EXPECT_EQ(&node.input(0), &graph->input(1));
  EXPECT_EQ(&node.input(2), &graph->input(1));
}

TEST(ParseGraph, TakesIntegersForTheElementsOfAFloatTensor) {
  const auto graph = parse_graph("graph(%w: f32[2] = {1, 2}): return (%w)");
  EXPECT_THAT(graph->find_initializer("w")->initializer()->to_doubles(), testing::ElementsAre(1.0, 2.0));
}

TEST(ParseGraph, ReadsScalarsWithTheirValue) {
  const auto graph = parse_graph("graph(%i: int{past + seq}): return ()");
  const Type expected = Type::scalar(DType::kInt64, SymExpr::symbol("seq") + SymExpr::symbol("past"));
  EXPECT_EQ(graph->input(0).type(), expected);
}

TEST(ParseGraph, LetsBodiesThatStandSideBySideUseTheSameNames) {
  const std::string text =
      "graph(%p): %o = If(%p) {a=graph(): %k = F() return (%k), b=graph(): %k = G() return (%k)} return (%o)";
  EXPECT_THAT(normalize(text), HasSubstr("%k_1 = G()"));
  EXPECT_EQ(normalize(normalize(text)), normalize(text));
}

// ------------------------------------------------------------------------------------------------ printing

TEST(Print, MakesNamesUniqueAndLeavesThoseOfInputsAndOutputs) {
  Graph graph;
  Value& x = graph.add_input("x", {});
  Value& first = add(graph, "A", {&x}, "y");
  Value& second = add(graph, "B", {&first}, "x");
  graph.add_output(&add(graph, "C", {&second}, "y"));
  EXPECT_EQ(print(graph), in_graph("%x", "  %y_1 = A(%x)\n  %x_1 = B(%y_1)\n  %y = C(%x_1)\n  return (%y)"));
}

TEST(Print, LeavesOutAnOutputNameThatTheValueHas) {
  EXPECT_EQ(normalize("graph(%x): return (%x as x)"), in_graph("%x", "  return (%x)"));
}

TEST(Print, ShowsWhereANodeComesFromOnRequest) {
  Graph graph;
  graph.append(onnx("Neg", {})).set_source(intern({.module = "model.mlp", .file = "/a/m.py", .line = 3}));
  graph.append(onnx("Abs", {}));
  EXPECT_EQ(print(graph, {.sources = true}),
            in_graph("", "  %0 = Neg()  # model.mlp, m.py:3\n  %1 = Abs()\n  return ()"));
}

TEST(Print, LeavesOutTypesOnRequestButNotThoseOfInitializers) {
  const auto graph = parse_graph("graph(%x: f32[2], %w: f32[1] = {1}): %y: f32[2] = Add(%x, %w) return (%y)");
  EXPECT_EQ(print(*graph, {.types = false}), in_graph("%x, %w: f32[1] = {1.0}", "  %y = Add(%x, %w)\n  return (%y)"));
}

TEST(Print, LeavesOutTheElementsOfLargeInitializers) {
  Graph graph;
  const std::vector<std::int64_t> sizes = {1024, 64};
  graph.add_initializer("w", Tensor::filled(0.0, DType::kFloat32, sizes));
  EXPECT_EQ(print(graph), in_graph("%w: f32[1024,64] = {...}", "  return ()"));
  EXPECT_EQ(print(graph, {.max_elements = 65536}).find("..."), std::string::npos);
}

TEST(Print, OfANestedGraphNamesWhatItCaptures) {
  const auto graph =
      parse_graph("graph(%x, %p): %o = If(%p) {then_branch=graph(): %n = Neg(%x) return (%n)} return (%o)");
  EXPECT_EQ(print(graph->first()->subgraph("then_branch")), in_graph("", "  %n = Neg(%x)\n  return (%n)"));
}

TEST(Print, ShowsAnArgumentWithoutAnOperandInsteadOfFailing) {
  Graph graph;
  graph.append({.domain = "aten", .op = "f.default", .arguments = {{Argument::Operand{7}}}, .is_torch = true});
  EXPECT_THAT(print(graph), HasSubstr("aten.f.default(<operand 7 of 0>)"));
}

// ------------------------------------------------------------------------------------------------ models

TEST(ModelText, HasOpsetsMetadataAndFunctions) {
  const std::string text =
      "opset 22\n"
      "opset com.microsoft 1\n"
      "metadata \"key\" = \"a \\\"value\\\"\"\n"
      "graph(%x: f32[2]):\n"
      "  %y = my.domain::Twice(%x) {alpha=1.0}\n"
      "  return (%y)\n"
      "\n"
      "function my.domain::Twice(%x) attributes(alpha, beta) opsets(22, my.domain 1):\n"
      "  %y = Add(%x, %x)\n"
      "  return (%y)\n"
      "\n"
      "function my.domain::Nothing():\n"
      "  return ()\n";
  const Model model = parse_model(text);
  EXPECT_EQ(print(model), text);
  EXPECT_EQ(model.opsets.at(""), 22);
  EXPECT_EQ(model.metadata.at("key"), "a \"value\"");
  ASSERT_EQ(model.functions.size(), 2u);
  EXPECT_EQ(model.functions[0].domain, "my.domain");
  EXPECT_EQ(model.functions[0].name, "Twice");
  EXPECT_THAT(model.functions[0].attributes, testing::ElementsAre("alpha", "beta"));
  EXPECT_EQ(model.functions[0].opsets.at("my.domain"), 1);
}

TEST(ModelText, MayBeAGraphAlone) { EXPECT_TRUE(parse_model("graph(): return ()").opsets.empty()); }

// ------------------------------------------------------------------------------------------------ large graphs

TEST(LargeGraphs, GoThroughTextUnchanged) {
  Graph graph;
  Value* value = &graph.add_input("x", f32({SymExpr::symbol("batch"), 8}));
  for (int i = 0; i < 20'000; ++i) {
    value = &add(graph, "Add", {value, value}, "same");
    value->set_type(f32({SymExpr::symbol("batch"), 8}));
  }
  graph.add_output(value, "y");
  const std::string text = print(graph);
  EXPECT_EQ(normalize(text), text);
  EXPECT_EQ(print(*graph.clone()), text);
}

}  // namespace
}  // namespace exportguard::ir
