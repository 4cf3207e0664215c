#include "exportguard/validation/divergence.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exportguard/evaluator/evaluator.h"
#include "exportguard/ir/text.h"

namespace exportguard::validation {
namespace {

using evaluator::Value;
using ::testing::ElementsAre;

constexpr std::string_view kRight = R"(opset 23
graph(%x: f32[n,4], %w: f32[4] = {1.5, 2.5, 0.5, 3.0}):
  %scaled: f32[n,4] = Mul(%x, %w)
  %soft: f32[n,4] = Softmax(%scaled) {axis=-1}
  %sum: f32[n,4] = Add(%soft, %x)
  %y: f32[n,4] = Tanh(%sum)
  return (%y)
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kRight);
  return text.replace(text.find(from), from.size(), to);
}

std::vector<Value> inputs() {
  at::manual_seed(0);
  return {ir::Tensor(at::randn({4, 4}))};
}

DivergenceReport searched(const std::string& wrong, const DivergenceOptions& options = {}) {
  static std::vector<ir::Model> kept;  // the report points into it
  const ir::Model right = ir::parse_model(kRight);
  kept.push_back(ir::parse_model(wrong));
  DivergenceReport report = find_divergence(right, kept.back(), inputs(), options);
  if (report.first) report.first->reference_node = nullptr;  // ends with this function
  return report;
}

std::vector<std::string> names(const Divergence& divergence) {
  std::vector<std::string> found;
  for (const NamedValue& input : divergence.inputs) found.push_back(input.name);
  return found;
}

TEST(FindDivergence, FindsNothingInEqualModels) {
  const DivergenceReport report = searched(std::string(kRight));
  EXPECT_FALSE(report.first.has_value());
  EXPECT_TRUE(report.outputs_agree());
  EXPECT_EQ(report.aligned, 4u);
}

TEST(FindDivergence, NamesTheNodeWhoseAxisIsAnotherOne) {
  const DivergenceReport report = searched(with("axis=-1", "axis=0"));
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Softmax");
  EXPECT_THAT(names(*report.first), ElementsAre("scaled"));
  EXPECT_FALSE(report.first->finding.agrees());
  EXPECT_FALSE(report.outputs_agree());
}

TEST(FindDivergence, NamesTheReaderOfAFactorThatIsLost) {
  const DivergenceReport report = searched(with("Softmax(%scaled)", "Softmax(%x)"));
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Softmax");
}

TEST(FindDivergence, CarriesTheNodesAlone) {
  const DivergenceReport report = searched(with("Add(%soft, %x)", "Sub(%soft, %x)"));
  ASSERT_TRUE(report.first.has_value());
  const Divergence& first = *report.first;
  EXPECT_EQ(first.reproduction.graph->node_count(), 1u);
  std::vector<Value> given;
  for (const NamedValue& input : first.inputs) given.push_back(input.content);
  const std::vector<Value> again = evaluator::run(first.reproduction, given);
  EXPECT_TRUE(again.front().tensor() == first.got->tensor());
}

TEST(FindDivergence, TellsAllNodesThatAreWrongByThemselves) {
  std::string text = with("Tanh(%sum)", "Sigmoid(%sum)");
  text.replace(text.find("axis=-1"), 7, "axis=0");
  const DivergenceReport report = searched(text);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Softmax");
  ASSERT_EQ(report.further.size(), 1u);
  EXPECT_EQ(report.further.front().name, "y");
}

TEST(FindDivergence, TellsARuntimesOwnFault) {
  DivergenceOptions options;
  options.run = [](const ir::Model& model, std::span<const Value> given) {
    std::vector<Value> outputs = evaluator::run(model, given);
    bool has_softmax = false;
    for (const ir::Node& node : *model.graph) has_softmax = has_softmax || node.op() == "Softmax";
    if (has_softmax) outputs.back() = ir::Tensor(outputs.back().tensor().aten() + 1);
    return outputs;
  };
  const DivergenceReport report = searched(std::string(kRight), options);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_TRUE(report.first->is_runtimes_own);
}

// A value that is made beside the wrong one, by one node, is read from an input in its reproduction.
TEST(FindDivergence, ANodeMakesOneValueThatIsGivenAndOneThatIsNot) {
  const ir::Model right = ir::parse_model(R"(opset 23
graph(%x: f32[4,4], %first: i64[2] = {0, 1}):
  %a: f32[4,2] = Gather(%x, %first) {axis=1}
  %d: f32[4,2] = Neg(%a)
  return (%d))");
  const ir::Model model = ir::parse_model(R"(opset 23
graph(%x: f32[4,4]):
  %a: f32[4,2], %u: f32[4,2] = Split(%x) {axis=1, num_outputs=2}
  %d: f32[4,2] = Mul(%u, %a)
  return (%d))");
  const DivergenceReport report = find_divergence(right, model, inputs());
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Mul");
  EXPECT_THAT(names(*report.first), ElementsAre("x", "a"));

  std::vector<Value> given;
  for (const NamedValue& input : report.first->inputs) given.push_back(input.content);
  given[1] = ir::Tensor(at::zeros({4, 2}));  // it is read from the input, not from the node
  const std::vector<Value> again = evaluator::run(report.first->reproduction, given);
  EXPECT_TRUE(again.front().tensor().aten().eq(0).all().item<bool>());
}

TEST(FindDivergence, AlignsWhatOneReaderReadsByOtherOperators) {
  std::string wrong = with("%soft: f32[n,4] = Softmax(%scaled) {axis=-1}", "%Sigmoid_7: f32[n,4] = Sigmoid(%scaled)");
  wrong.replace(wrong.find("Add(%soft"), 9, "Add(%Sigmoid_7");
  const DivergenceReport report = searched(wrong);
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Sigmoid");
}

TEST(FindDivergence, ShowsSeveralNodesBesideTheReferences) {
  std::string wrong =
      with("%scaled: f32[n,4] = Mul(%x, %w)", "%Neg_3: f32[n,4] = Neg(%x)\n  %Abs_3: f32[n,4] = Abs(%Neg_3)");
  wrong.replace(wrong.find("Softmax(%scaled"), 15, "Softmax(%Abs_3");
  const ir::Model right = ir::parse_model(kRight);
  const ir::Model model = ir::parse_model(wrong);
  const DivergenceReport report = find_divergence(right, model, inputs());
  ASSERT_TRUE(report.first.has_value());
  ASSERT_TRUE(report.first->beside.has_value());
  const Beside copy = report.first->beside->copy();
  const Value expected = evaluator::run(copy.reference, copy.inputs).front();
  const Value got = evaluator::run(copy.model, copy.inputs).front();
  EXPECT_FALSE(expected.tensor() == got.tensor());
  EXPECT_TRUE(got.tensor() == report.first->got->tensor());
}

constexpr std::string_view kLoop = R"(opset 23
graph(%x: f32[4,4], %n: i64[] = {3}):
  %last: f32[4,4] = Loop(%n, _, %x) {body=graph(%i: i64[], %c: bool[], %s: f32[4,4]):
      %f: f32[] = Cast(%i) {to=1}
      %t: f32[4,4] = Add(%s, %f)
      %u: f32[4,4] = Tanh(%t)
      return (%c, %u)}
  %y: f32[4,4] = Neg(%last)
  return (%y)
)";

DivergenceReport searched_in_loop(std::string_view from, std::string_view to, const DivergenceOptions& options = {}) {
  static std::vector<ir::Model> kept;
  std::string wrong(kLoop);
  kept.push_back(ir::parse_model(kLoop));
  kept.push_back(ir::parse_model(wrong.replace(wrong.find(from), from.size(), to)));
  return find_divergence(kept[kept.size() - 2], kept.back(), inputs(), options);
}

TEST(FindDivergence, NamesTheNodeWithinABody) {
  const DivergenceReport report = searched_in_loop("Tanh", "Sigmoid");
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Loop");
  ASSERT_TRUE(report.first->inside.has_value());
  EXPECT_EQ(report.first->inside->node->op(), "Sigmoid");
  EXPECT_EQ(report.first->inside->reference_node->op(), "Tanh");
  EXPECT_EQ(report.first->inside->iteration, 0u);
}

// The first iteration adds nothing and takes nothing away.
TEST(FindDivergence, TellsTheIterationInWhichABodyIsWrong) {
  const DivergenceReport report = searched_in_loop("Add(%s, %f)", "Sub(%s, %f)");
  ASSERT_TRUE(report.first.has_value() && report.first->inside.has_value());
  EXPECT_EQ(report.first->inside->node->op(), "Sub");
  EXPECT_EQ(report.first->inside->iteration, 1u);
}

TEST(FindDivergence, HoldsNoMoreThanItsWindow) {
  const DivergenceOptions options{.device = "cpu", .tolerance = {}, .window = 1, .run = {}};
  EXPECT_FALSE(searched(std::string(kRight), options).first.has_value());
  EXPECT_TRUE(searched(with("axis=-1", "axis=0"), options).first.has_value());
}

TEST(FindDivergence, NamesTheNodeThatCannotBeRun) {
  const DivergenceReport report = searched(with("%scaled: f32[n,4] = Mul(%x, %w)", "%scaled = Reshape(%x, %w)"));
  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->node->op(), "Reshape");
  EXPECT_THAT(report.error, ::testing::HasSubstr("cannot run Reshape"));
}

TEST(FindDivergence, LetsWhatStopsTheReferenceThrough) {
  const ir::Model wrong = ir::parse_model(with("Mul(%x, %w)", "Reshape(%x, %w)"));
  const ir::Model right = ir::parse_model(kRight);
  EXPECT_THROW(find_divergence(wrong, right, inputs()), evaluator::EvaluationError);
}

TEST(Validate, ComparesRecordedOutputs) {
  const ir::Model model = ir::parse_model(kRight);
  const std::vector<Value> right = evaluator::run(model, inputs());
  EXPECT_TRUE(validate(model, inputs(), right).front().agrees());
  const std::vector<Value> wrong{ir::Tensor(right.front().tensor().aten() + 1)};
  EXPECT_FALSE(validate(model, inputs(), wrong).front().agrees());
  EXPECT_EQ(validate(model, inputs(), wrong).front().name, "y");
  EXPECT_THROW(validate(model, inputs(), {}), InvalidArgument);
}

}  // namespace
}  // namespace exportguard::validation
