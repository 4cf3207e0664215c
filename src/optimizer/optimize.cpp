#include "exportguard/optimizer/optimize.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "exportguard/common/errors.h"
#include "exportguard/ir/declared_types.h"
#include "optimizer/driver.h"
#include "optimizer/passes.h"

namespace exportguard::optimizer {
namespace {

using Clock = std::chrono::steady_clock;
using Opsets = std::map<std::string, std::int64_t>;

constexpr std::string_view kDeadCode = "dead_code";
constexpr std::string_view kCommonSubexpressions = "common_subexpressions";
constexpr std::string_view kInlineFunctions = "inline_functions";

std::size_t count_nodes(const ir::Graph& graph) {
  std::size_t count = graph.node_count();
  for (const ir::Node& node : graph) {
    for (const ir::Graph* nested : node.subgraphs()) count += count_nodes(*nested);
  }
  return count;
}

std::size_t count_nodes(const ir::Model& model) {
  std::size_t count = count_nodes(*model.graph);
  for (const ir::Function& function : model.functions) count += count_nodes(*function.body);
  return count;
}

int opset_of(const ir::Model& model) {
  const auto found = model.opsets.find("");
  return found == model.opsets.end() ? 0 : static_cast<int>(found->second);
}

int opset_of(const ir::Model& model, const ir::Function& function) {
  const auto own = function.opsets.find("");
  return own == function.opsets.end() ? opset_of(model) : static_cast<int>(own->second);
}

void require_known(const PatternTable& table, const std::vector<std::string>& names) {
  const auto passes = pass_names();
  for (const std::string& name : names) {
    const bool is_known = table.find(name) != nullptr || std::ranges::find(passes, name) != passes.end();
    if (!is_known)
      throw InvalidArgument(fmt::format("no pattern or pass is named '{}'; docs/optimizer.md lists them", name));
  }
}

/// Files of other producers often say nothing of the values between inputs and outputs, or what was so once.
bool lacks_types(const ir::Graph& graph) {
  for (const ir::Node& node : graph) {
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      const ir::Value& value = node.output(i);
      const bool is_unknown = value.dtype() == DType::kUndefined || !value.type().shape;
      if (is_unknown && !value.is_unused() && value.type().kind == ir::Type::Kind::kTensor) return true;
    }
  }
  return false;
}

/// One run of `optimize`: the patterns that apply, and what they did.
class Run {
 public:
  Run(ir::Model& model, const OptimizeOptions& options, Report& report)
      : model_(model),
        options_(options),
        table_(options.table ? *options.table : PatternTable::builtin()),
        report_(report) {
    require_known(table_, options.only);
  }

  void inline_functions() {
    pass(kInlineFunctions, [&] { return optimizer::inline_functions(model_); });
  }

  void optimize(ir::Graph& graph, int opset, Opsets& opsets) {
    std::vector<const Pattern*> patterns;
    std::vector<PatternReport> reports;
    for (const Pattern& pattern : table_.patterns()) {
      const bool applies = pattern.opset <= opset && pattern.target <= options_.target && is_wanted(pattern.name);
      if (!applies) continue;
      patterns.push_back(&pattern);
      reports.push_back({.name = std::string(pattern.name)});
    }

    const Facts facts(opset, options_.target, options_.positions);
    Driver driver(model_, facts, patterns, reports);
    clean(graph);
    for (const Stage stage : {Stage::kSimplify, Stage::kFuse, Stage::kFinish, Stage::kPack}) {
      driver.run(graph, stage);
      clean(graph);
    }

    for (const PatternReport& report : reports) add(report);
    for (const std::string& domain : driver.domains()) opsets.try_emplace(domain, 1);
    graph.erase_unused_initializers();
    graph.sweep();
  }

 private:
  bool is_wanted(std::string_view name) const {
    return options_.only.empty() || std::ranges::find(options_.only, name) != options_.only.end();
  }

  void clean(ir::Graph& graph) {
    if (is_wanted(kDeadCode)) pass(kDeadCode, [&] { return graph.erase_dead_nodes(); });
    if (is_wanted(kCommonSubexpressions))
      pass(kCommonSubexpressions, [&] { return merge_common_subexpressions(model_, graph); });
  }

  template <typename F>
  void pass(std::string_view name, F&& function) {
    const Clock::time_point begin = Clock::now();
    PatternReport report{.name = std::string(name), .applied = function()};
    report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    add(report);
  }

  void add(const PatternReport& report) {
    auto found = std::ranges::find(report_.patterns, report.name, &PatternReport::name);
    if (found == report_.patterns.end()) found = report_.patterns.insert(found, PatternReport{.name = report.name});
    found->applied += report.applied;
    found->seconds += report.seconds;
    for (const auto& [reason, times] : report.refusals) found->refusals[reason] += times;
  }

  ir::Model& model_;
  const OptimizeOptions& options_;
  const PatternTable& table_;
  Report& report_;
};

}  // namespace

std::vector<std::string> pass_names() { return {std::string(kDeadCode), std::string(kCommonSubexpressions)}; }

Report optimize(ir::Model& model, const OptimizeOptions& options) {
  const Clock::time_point begin = Clock::now();
  Report report;
  report.nodes_before = count_nodes(model);
  Run run(model, options, report);
  if (options.inlines_functions) {
    if (!options.are_types_inferred) ir::forget_types_of_functions(model);
    run.inline_functions();
  }
  const bool is_typed = options.are_types_inferred && !options.inlines_functions && !lacks_types(*model.graph);
  if (!is_typed) ir::infer_declared(model);
  run.optimize(*model.graph, opset_of(model), model.opsets);
  for (ir::Function& function : model.functions) {
    run.optimize(*function.body, opset_of(model, function), function.opsets);
  }
  report.nodes_after = count_nodes(model);
  report.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return report;
}

}  // namespace exportguard::optimizer
