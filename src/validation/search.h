#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "exportguard/validation/divergence.h"
#include "validation/alignment.h"
#include "validation/judgement.h"
#include "validation/lockstep.h"
#include "validation/segment.h"

namespace exportguard::validation {

/// The name that users see of the i-th output that is not None.
std::string name_of_output(const ir::Graph& graph, std::size_t position);

/// One search for the first node that diverges.
class Search {
 public:
  struct Subject {
    const ir::Model& reference;
    const ir::Model& model;
    std::span<const evaluator::Value> inputs;
    const DivergenceOptions& options;
  };

  explicit Search(const Subject& subject);
  DivergenceReport run();

 private:
  /// What is known of one aligned pair.
  struct State {
    std::optional<Finding> as_it_is;  ///< of the model as it runs; nothing: not seen
    std::optional<Finding> of_right;  ///< of what the node makes of right inputs
    evaluator::Value form;            ///< one element with the dtype and sizes of the model's value
  };

  // -------------------------------------------------------------- runs
  void run_as_it_is();
  void run_in_runtime();
  void observe_runtime();
  void observe_window(const std::vector<std::size_t>& window, const std::vector<evaluator::Value>& expected);
  void run_with_right_inputs();
  using Replace = std::function<std::optional<evaluator::Value>(std::size_t pair, const evaluator::Value& expected,
                                                                const evaluator::Value& got)>;
  /// The model beside the reference in the evaluator; its outputs, or nothing where it stops.
  std::optional<std::vector<evaluator::Value>> run_beside(const Replace& replace);
  std::vector<evaluator::Value> run_part(const ir::Model& part, const std::vector<evaluator::Value>& inputs,
                                         const RunModel& runtime) const;
  void judge_outputs(const std::vector<evaluator::Value>& got);

  // -------------------------------------------------------------- conclusions
  bool differs_somewhere() const;
  bool is_given(std::size_t pair) const;
  bool is_wrong(std::size_t pair) const;
  void conclude();
  void conclude_stopped();
  bool conclude_runtime();
  void conclude_by_rounding();
  std::vector<std::size_t> least_exact() const;
  Divergence divergence_at(const ir::Value& got, const ir::Value* expected);
  void fill_inputs(Divergence& divergence, const Segment& segment);
  void fill_figures(Divergence& divergence, const ir::Value* expected, const RunModel& runtime);
  double times_rounding(const Divergence& divergence) const;
  Values given_values() const;
  std::vector<const ir::Node*> reference_nodes(const ir::Value& expected) const;

  // -------------------------------------------------------------- values of the reference
  std::optional<evaluator::Value> known_content(const ir::Value& expected) const;
  evaluator::Value content_of(const ir::Value& expected, ReferenceRun& run) const;
  evaluator::Value remembered(const ir::Value& expected, ReferenceRun& run);
  Values wanted() const;

  const ir::Model& reference_;
  const ir::Model& model_;
  std::span<const evaluator::Value> inputs_;
  const DivergenceOptions& options_;
  std::vector<AlignedPair> pairs_;
  std::unordered_map<const ir::Value*, std::size_t> by_got_;
  std::vector<State> states_;
  Values is_output_;  ///< of the reference
  std::unordered_map<const ir::Value*, evaluator::Value> expected_outputs_;
  const ir::Node* stopped_at_ = nullptr;  ///< the node that could not be run on right inputs
  std::string stopped_because_;
  DivergenceReport report_;
};

}  // namespace exportguard::validation
