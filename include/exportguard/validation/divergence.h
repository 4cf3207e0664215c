#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exportguard/evaluator/value.h"
#include "exportguard/ir/graph.h"
#include "exportguard/validation/comparison.h"

namespace exportguard::validation {

/// Two values that should be the same, and how far they are apart.
struct Finding {
  std::string name;        ///< of the value in the model
  Comparison figures;      ///< of tensors of numbers
  Tolerance tolerance;     ///< that was asked of it
  std::string structural;  ///< why they cannot be compared value by value: dtypes, shapes, kinds; else empty

  bool agrees() const { return structural.empty() && figures.agrees(); }
};

/// A value of the graph around the place where two models part.
struct NamedValue {
  std::string name;
  evaluator::Value content;
};

/// Where a model stops computing what its reference does.
struct Divergence {
  const ir::Node* node = nullptr;                ///< of the model: its output is the first wrong value
  const ir::Node* reference_node = nullptr;      ///< that gives the value it should be
  std::vector<const ir::Node*> nodes;            ///< of the model, between right values and the wrong one, in order
  std::vector<const ir::Node*> reference_nodes;  ///< of the reference, likewise
  Finding finding;                               ///< what `nodes` make of right inputs, beside what they should
  std::vector<NamedValue> inputs;                ///< right values that `nodes` read
  evaluator::Value expected;
  std::optional<evaluator::Value> got;  ///< nothing where the model stops with an error
  std::string error;                    ///< of the node that could not be run
  ir::Model reproduction;               ///< `nodes` alone, from `inputs` to the wrong value
  bool is_runtimes_own = false;         ///< the nodes are right in the evaluator: what ran the model is not
  /// Noise that it is above of: how many times the rounding of its inputs its error is; 0 where a tolerance told.
  double times_rounding = 0.0;
};

struct DivergenceReport {
  std::vector<Finding> outputs;  ///< of the models as they are
  std::optional<Divergence> first;
  std::vector<Finding> further;  ///< values behind `first` that are wrong although their inputs were right
  std::size_t nodes = 0;         ///< of the model's main graph
  std::size_t aligned = 0;       ///< values of the model that have one of the reference beside them
  std::string error;             ///< what stopped the model; empty if it ran

  bool outputs_agree() const;
};

/// Runs a model as it is and returns its outputs in order; what it throws is taken for the model's fault.
using RunModel = std::function<std::vector<evaluator::Value>(const ir::Model&, std::span<const evaluator::Value>)>;

struct DivergenceOptions {
  std::string device = "cpu";
  std::optional<Tolerance> tolerance;         ///< nothing: `tolerance_for` each dtype
  std::size_t window = std::size_t{1} << 30;  ///< bytes of values of one side held for the other
  RunModel run;                               ///< another runtime for the model; empty: the evaluator
};

/// Runs a reference and a model side by side and finds the first node of the model that makes a wrong value of right
/// ones. The reference is a functional program of torch operators (whose values the lowering and the optimizer keep by
/// name) or another ONNX model; inputs and outputs of both stand in one order.
///
/// The two are aligned by the names and sources of nodes and by what nodes read. Where values differ, the model runs
/// once more with the reference's values in the place of its own, so that each node is judged by what it makes of right
/// inputs; where no node is beyond its tolerance, by how far it is beyond the rounding of its inputs. Values that only
/// differ because a runtime draws random numbers or leaves memory unset are not compared.
///
/// Memory: both sides run in step, and what one is ahead of the other is bounded by `window`. The models must outlive
/// the report.
/// @throws EvaluationError if the reference cannot be run; InvalidArgument for inputs that do not fit it.
DivergenceReport find_divergence(const ir::Model& reference, const ir::Model& model,
                                 std::span<const evaluator::Value> inputs, const DivergenceOptions& options = {});

/// Runs a saved model in the evaluator on recorded inputs and compares its outputs with recorded ones.
/// @throws EvaluationError, InvalidArgument unless there is one value for each input and output.
std::vector<Finding> validate(const ir::Model& model, std::span<const evaluator::Value> inputs,
                              std::span<const evaluator::Value> expected, const DivergenceOptions& options = {});

}  // namespace exportguard::validation
