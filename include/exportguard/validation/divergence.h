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

/// The same place of two models, from the same right values to what should be one value, under names of their own.
struct Beside {
  ir::Model reference;
  ir::Model model;
  std::vector<evaluator::Value> inputs;  ///< of both, in the form of the model's

  Beside copy() const;  ///< weights are shared
};

/// A place within a body of If, Loop or Scan.
struct Inside {
  const ir::Node* node = nullptr;            ///< makes a wrong value of right ones
  const ir::Node* reference_node = nullptr;  ///< or null, where an input of the body stands beside it
  std::size_t iteration = 0;                 ///< how often the value had been made before
  Finding finding;
  std::vector<const ir::Node*> nodes;  ///< of its body, between right values and the wrong one, in order
};

/// Where a model stops computing what its reference does.
struct Divergence {
  const ir::Node* node = nullptr;                ///< of the model: its output is the first wrong value
  const ir::Node* reference_node = nullptr;      ///< that gives the value it should be
  std::vector<const ir::Node*> nodes;            ///< of the model, between right values and the wrong one, in order
  std::vector<const ir::Node*> reference_nodes;  ///< of the reference, likewise
  std::vector<const ir::Node*> cleared;          ///< those of `nodes` that right values were made of as well
  Finding finding;                               ///< what `nodes` make of right inputs, beside what they should
  std::vector<NamedValue> inputs;                ///< right values that `nodes` read
  evaluator::Value expected;
  std::optional<evaluator::Value> got;  ///< nothing where the model stops with an error
  std::string error;                    ///< of the node that could not be run
  ir::Model reproduction;               ///< `nodes` alone, from `inputs` to the wrong value
  std::optional<Beside> beside;         ///< of several nodes that make the wrong value, and of those with bodies
  std::optional<Inside> inside;         ///< of nodes with bodies; its nodes are those of `beside`
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
  std::size_t window = std::size_t{1} << 30;  ///< bytes of values that are held at once, for what is told of one
  RunModel run;                               ///< another runtime for the model; empty: the evaluator
};

/// Runs a reference and a model side by side and finds the first node of the model that makes a wrong value of right
/// ones. The reference is a functional program of torch operators (whose values the lowering and the optimizer keep by
/// name) or another ONNX model; inputs and outputs of both stand in one order.
///
/// The two are aligned by the names and sources of nodes and by what nodes read. They run in step, once: where the
/// model's value is another one, later nodes are given the reference's, so that each node is judged by what it makes of
/// right inputs. Then the model runs as it is, for its outputs, unless it had its own values all the way. Where outputs
/// are wrong and no node is beyond its tolerance, nodes are judged by how far they are beyond the rounding of their
/// inputs. Values that only differ because a runtime draws random numbers or leaves memory unset are not compared.
///
/// Memory: each side holds what it still reads, and beyond that `window` bytes are held. The models must outlive the
/// report.
/// @throws EvaluationError if the reference cannot be run; InvalidArgument for inputs that do not fit it.
DivergenceReport find_divergence(const ir::Model& reference, const ir::Model& model,
                                 std::span<const evaluator::Value> inputs, const DivergenceOptions& options = {});

/// Runs a saved model in the evaluator on recorded inputs and compares its outputs with recorded ones.
/// @throws EvaluationError, InvalidArgument unless there is one value for each input and output.
std::vector<Finding> validate(const ir::Model& model, std::span<const evaluator::Value> inputs,
                              std::span<const evaluator::Value> expected, const DivergenceOptions& options = {});

}  // namespace exportguard::validation
