#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "exportguard/validation/divergence.h"
#include "validation/alignment.h"
#include "validation/held_values.h"
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
    std::optional<Finding> in_runtime;  ///< of the model as another runtime runs it; nothing: not seen
    std::optional<Finding> of_right;    ///< of what the node makes of right inputs; nothing: not reached
    bool has_other_form = false;        ///< of another dtype, or with axes of size 1 that the reference has not
  };
  using Contents = std::vector<evaluator::Value>;

  // -------------------------------------------------------------- runs
  void run_in_evaluator();
  /// The outputs of the model in the evaluator, each node of which reads right values; nothing where it stops.
  std::optional<Contents> run_with_right_inputs();
  Contents run_as_it_is() const;
  std::optional<evaluator::Value> given_instead(std::size_t pair, const evaluator::Value& expected,
                                                const evaluator::Value& got);
  bool is_free(std::size_t pair, const evaluator::Value& expected, const evaluator::Value& got) const;
  const ir::Node* node_of_step(std::size_t step) const;
  void run_in_runtime();
  void observe_runtime();
  void observe_window(const std::vector<std::size_t>& window, const Contents& expected);
  Contents run_part(const ir::Model& part, const Contents& inputs, const RunModel& runtime) const;
  void judge_outputs(const Contents& got);

  // -------------------------------------------------------------- conclusions
  bool differs_somewhere() const;
  bool is_given(std::size_t pair) const;
  bool is_wrong(std::size_t pair) const;
  std::optional<std::size_t> find_first_wrong() const;
  void conclude();
  void conclude_first(std::size_t pair);
  void conclude_stopped();
  bool is_right_in_evaluator() const;
  bool conclude_runtime();
  void conclude_by_rounding();
  std::vector<std::size_t> least_exact() const;
  Divergence divergence_at(const ir::Value& got, const ir::Value* expected);
  void fill_figures(Divergence& divergence, std::size_t pair, const RunModel& runtime);
  double times_rounding(const Divergence& divergence) const;
  std::optional<Beside> beside(std::size_t pair) const;
  Contents right_contents(const std::vector<const ir::Value*>& values) const;

  // -------------------------------------------------------------- values of another form
  std::optional<std::size_t> maker_of_form(const ir::Value& target, Likeness likeness = Likeness::kMeaning) const;
  std::optional<std::size_t> form_that_mends(const ir::Value& target, Likeness likeness) const;
  bool is_right_of(const ir::Value& target, const Segment& segment, const Contents& contents, Likeness likeness) const;
  Contents reference_contents(const std::vector<const ir::Value*>& values) const;
  std::optional<std::size_t> output_of_other_form() const;
  std::vector<const ir::Node*> cleared(const Divergence& divergence) const;
  bool makes_right_values(const ir::Node& node, const ir::Node& wrong) const;

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
  HeldValues right_;
  std::unordered_map<std::size_t, evaluator::Value> chance_;  ///< right values that the model need not make by itself
  bool is_as_it_is_ = true;  ///< no value that the model was given differs from its own
  Values given_;             ///< of the model
  Values given_expected_;    ///< beside them
  Values is_output_;         ///< of the reference
  std::unordered_map<const ir::Value*, evaluator::Value> expected_outputs_;
  const ir::Node* stopped_at_ = nullptr;  ///< the node that could not be run on right inputs
  std::string stopped_because_;
  std::optional<Inside> stopped_inside_;
  DivergenceReport report_;
};

}  // namespace exportguard::validation
