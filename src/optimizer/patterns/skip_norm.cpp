#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

constexpr std::int64_t kFloat32 = 1;  // TensorProto.FLOAT

bool has_kernel(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat16; }

/// A weight as long as the last axis of `x`, known before the graph runs.
bool is_weight_of(const Value* weight, const Value& x) {
  if (weight == nullptr || weight->producer() != nullptr || !has_rank(*weight, 1)) return false;
  const auto last = dim(x, -1);
  return last && last->is_constant() && dim(*weight, 0) == last && weight->dtype() == x.dtype();
}

/// onnxruntime adds and normalizes in one pass over the memory, and gives the sum as well.
Match match_skip(const Facts&, ir::Node& norm) {
  ir::Node* sum = producer_of(norm.find_input(0), "Add");
  if (!sum) return Match::no("it does not normalize a sum");
  if (&sum->graph() != &norm.graph()) return Match::no("the sum is of a graph outside");

  const Value& x = sum->output();
  if (!has_kernel(x.dtype())) return Match::no("onnxruntime has no kernel for the dtype");
  if (!has_rank(x, 2) && !has_rank(x, 3)) return Match::no("the kernel takes two or three axes");
  if (!same_shape(sum->input(0), sum->input(1))) return Match::no("an operand of the sum may be stretched");
  if (axis_from_start(x, int_attribute(norm, "axis", -1)) != static_cast<std::int64_t>(*x.type().rank()) - 1)
    return Match::no("it normalizes over more than the last axis");
  if (int_attribute(norm, "stash_type", kFloat32) != kFloat32) return Match::no("it does not compute in float32");
  if (float_attribute(norm, "epsilon", 1e-5) < 0) return Match::no("the kernel takes no negative epsilon");
  if (!is_weight_of(norm.find_input(1), x)) return Match::no("the weight is not as long as the last axis");

  return Match([sum, &norm](Rewriter& rewriter) {
    norm.graph().move_before(norm, *sum);  // what else reads the sum stands behind it
    const double epsilon = float_attribute(norm, "epsilon", 1e-5);
    const ir::Type none;
    ir::Node& made = rewriter.node({.domain = "com.microsoft",
                                    .op = "SkipSimplifiedLayerNormalization",
                                    .inputs = {&sum->input(0), &sum->input(1), &norm.input(1)},
                                    .attributes = ir::AttributeList{{"epsilon", epsilon}}.take(),
                                    .outputs = {norm.output().type(), none, none, sum->output().type()}});
    rewriter.replace(norm.output(), made.output(0));
    rewriter.replace(sum->output(), made.output(3));
  });
}

/// x · sigmoid(x), or x · sigmoid(alpha · x) with a number.
Match match_quick_gelu(const Facts& facts, ir::Node& product) {
  for (std::size_t i = 0; i < 2; ++i) {
    const ir::Node* sigmoid = producer_of(product.find_input(i), "Sigmoid");
    if (!sigmoid || !has_one_use(sigmoid->output())) continue;
    Value& x = product.input(1 - i);
    if (x.dtype() != DType::kFloat32) return Match::no("onnxruntime has no kernel for the dtype");

    double alpha = 1;
    if (&sigmoid->input(0) != &x) {
      const ir::Node* scaled = producer_of(&sigmoid->input(0), "Mul");
      const Value* factor = scaled ? other_operand(*scaled, &x) : nullptr;
      const auto number = facts.number(factor);
      if (!number || !has_one_use(scaled->output()) || !same_shape(scaled->output(), x))
        return Match::no("the sigmoid is not of the same tensor");
      alpha = *number;
    }

    return Match([alpha, &x, &product](Rewriter& rewriter) {
      ir::Node& made = rewriter.node({.domain = "com.microsoft",
                                      .op = "QuickGelu",
                                      .inputs = {&x},
                                      .attributes = ir::AttributeList{{"alpha", alpha}}.take(),
                                      .outputs = {product.output().type()}});
      rewriter.replace(product.output(), made.output());
    });
  }
  return Match::no("neither operand is a Sigmoid that is read there alone");
}

}  // namespace

void populate_skip_norm(PatternTable& table) {
  table.add({.name = "skip_rms_norm",
             .matches = "`RMSNormalization` over the last axis of a sum of two tensors of one shape",
             .makes = "`SkipSimplifiedLayerNormalization`, which gives the sum as well",
             .roots = {"RMSNormalization"},
             .match = match_skip,
             .stage = Stage::kFinish,
             .opset = 23,
             .target = Target::kOnnxRuntime});
  table.add({.name = "quick_gelu",
             .matches = "x · sigmoid(α · x) in float32",
             .makes = "`QuickGelu`, which onnxruntime would make when it loads the model",
             .roots = {"Mul"},
             .match = match_quick_gelu,
             .stage = Stage::kFinish,
             .target = Target::kOnnxRuntime});
}

}  // namespace exportguard::optimizer
