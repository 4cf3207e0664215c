#include "exportguard/validation/divergence.h"

#include <fmt/format.h>

#include <algorithm>

#include "exportguard/evaluator/evaluator.h"
#include "validation/search.h"

namespace exportguard::validation {

bool DivergenceReport::outputs_agree() const {
  return error.empty() && std::ranges::all_of(outputs, [](const Finding& finding) { return finding.agrees(); });
}

Beside Beside::copy() const {
  return {cut_out(reference, outputs_of(*reference.graph)), cut_out(model, outputs_of(*model.graph)), inputs};
}

DivergenceReport find_divergence(const ir::Model& reference, const ir::Model& model,
                                 std::span<const evaluator::Value> inputs, const DivergenceOptions& options) {
  return Search({reference, model, inputs, options}).run();
}

std::vector<Finding> validate(const ir::Model& model, std::span<const evaluator::Value> inputs,
                              std::span<const evaluator::Value> expected, const DivergenceOptions& options) {
  const std::vector<const ir::Value*> outputs = outputs_of(*model.graph);
  if (expected.size() != outputs.size()) {
    throw InvalidArgument(
        fmt::format("the model has {} outputs, got {} recorded ones", outputs.size(), expected.size()));
  }
  const evaluator::Options settings{.device = options.device, .observer = {}, .substitute = {}};
  const std::vector<evaluator::Value> got =
      options.run ? options.run(model, inputs) : evaluator::run(model, inputs, settings);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
    findings.push_back(judge(expected[i], got[i], Likeness::kExact, options.tolerance));
    findings.back().name = name_of_output(*model.graph, i);
  }
  return findings;
}

}  // namespace exportguard::validation
