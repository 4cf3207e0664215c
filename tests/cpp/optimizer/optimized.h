#pragma once

#include <string>
#include <string_view>

#include "exportguard/ir/graph.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "exportguard/optimizer/optimize.h"

namespace exportguard::optimizer {

struct Optimized {
  std::string nodes;  ///< the text without the line of inputs and initializers, and without types
  Report report;
};

/// The graph after the named patterns and passes, all if there are none.
inline Optimized optimized(std::string_view text, const std::vector<std::string>& only = {}, int opset = 25) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  model.opsets[""] = opset;
  OptimizeOptions options;
  options.only = only;
  options.are_types_inferred = true;  // the types of these texts are the tests' own, whatever makes the sizes
  Report report = optimize(model, options);
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  return {printed.substr(printed.find('\n') + 1), std::move(report)};
}

inline std::string optimized_nodes(std::string_view text, const std::vector<std::string>& only = {}, int opset = 25) {
  return optimized(text, only, opset).nodes;
}

/// A text with `by` in the place where `what` is first said.
inline std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  result.replace(result.find(what), what.size(), by);
  return result;
}

/// The graph as it stands, in the same form.
inline std::string unchanged(std::string_view text) {
  const std::string printed = ir::print(*ir::parse_graph(text), {.types = false});
  return printed.substr(printed.find('\n') + 1);
}

/// Whether the pattern gave that reason.
inline bool declined(const Report& report, std::string_view pattern, const std::string& reason) {
  for (const PatternReport& one : report.patterns) {
    if (one.name == pattern) return one.refusals.contains(reason);
  }
  return false;
}

}  // namespace exportguard::optimizer
