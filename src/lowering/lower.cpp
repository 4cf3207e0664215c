#include "exportguard/lowering/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "exportguard/common/errors.h"
#include "exportguard/ir/places.h"
#include "lowering/complex_parts.h"
#include "lowering/shared.h"

namespace exportguard::lowering {
namespace {

constexpr std::size_t kPlacesShown = 4;

std::string where(const ir::Node& node) { return node.source() ? node.source()->where() : std::string(); }

/// A SymInt that the sizes of known tensors give needs no lowering of its own: `past + seq` is computed once.
bool answer_from_sizes(LoweringContext& ctx) {
  if (ctx.node().output_count() != 1) return false;
  const ir::Type& type = ctx.output_type();
  if (!type.is_scalar || type.dtype != DType::kInt64 || !type.value) return false;
  Value* dim = ctx.find_dim_value(*type.value);
  if (dim == nullptr) return false;
  ctx.result(ctx.dim_as_scalar(dim));
  return true;
}

void lower_node(LoweringContext::Shared& shared, ir::Node& node) {
  const Lowering* lowering = shared.table.find(node.qualified_name());
  LoweringContext ctx(shared, node);
  try {
    if (answer_from_sizes(ctx)) return;
    if (lowering == nullptr) {
      shared.failures.push_back({node.qualified_name(), where(node), {}});
      return;
    }
    (*lowering)(ctx);
  } catch (const LoweringError& error) {
    shared.failures.push_back({node.qualified_name(), where(node), error.what()});
  } catch (const Error& error) {
    shared.failures.push_back(
        {node.qualified_name(), where(node),
         fmt::format("cannot lower {}: {}", ir::placed(node.qualified_name(), node.source()), error.what())});
  } catch (const std::out_of_range&) {  // of a list that is read entry by entry
    shared.failures.push_back({node.qualified_name(), where(node),
                               fmt::format("cannot lower {}: an argument has fewer entries than the operator takes",
                                           ir::placed(node.qualified_name(), node.source()))});
  } catch (const std::runtime_error& error) {  // libtorch's: of a number that a dtype does not hold
    shared.failures.push_back(
        {node.qualified_name(), where(node),
         fmt::format("cannot lower {}: {}", ir::placed(node.qualified_name(), node.source()), error.what())});
  }
}

/// Behind a colon; nothing if none is known.
std::string listed(const std::set<std::string>& places) {
  std::string text = places.empty() ? "" : ": ";
  std::size_t shown = 0;
  for (const std::string& place : places) {
    if (shown == kPlacesShown) return text + fmt::format("; and {} more", places.size() - shown);
    text += (shown++ ? "; " : "") + place;
  }
  return text;
}

/// One line for each operator without a row, then one for each failure of a row; equal ones counted.
std::string describe(const std::vector<Failure>& failures) {
  std::map<std::string, std::set<std::string>> places;
  std::map<std::string, std::size_t> counts;
  std::map<std::string, std::size_t> reasons;
  for (const Failure& failure : failures) {
    if (!failure.reason.empty()) {
      ++reasons[failure.reason];
      continue;
    }
    ++counts[failure.target];
    if (!failure.where.empty()) places[failure.target].insert(failure.where);
  }

  std::string text;
  if (!counts.empty())
    text += fmt::format("{} operator{} without a lowering:", counts.size(), counts.size() > 1 ? "s" : "");
  for (const auto& [target, count] : counts)
    text += fmt::format("\n  {} ({}x){}", target, count, listed(places[target]));
  if (!counts.empty()) {
    text += fmt::format(
        "\nconvert it yourself: to_onnx(…, dispatcher=exportguard.Dispatcher({{\"{}\": lambda g, x: g.op.Relu(x)}})), "
        "or "
        "a row of LoweringOptions::table in C++",
        counts.begin()->first);
  }

  for (const auto& [reason, count] : reasons) {
    if (!text.empty()) text += '\n';
    text += count > 1 ? fmt::format("{} ({} times)", reason, count) : reason;
  }
  return text;
}

}  // namespace

void lower_graph(LoweringContext::Shared& shared, ir::Graph& graph) {
  for (ir::Node& node : graph) {
    if (node.is_torch()) lower_node(shared, node);
  }
}

void lower_nodes(LoweringContext::Shared& shared, ir::Node& first, const ir::Node& end) {
  for (ir::NodeIterator node(&first); &*node != &end; ++node) {
    if (node->is_torch()) lower_node(shared, *node);
  }
}

bool can_lower(const ir::Node& node, const LoweringTable& table) {
  const std::string target = node.qualified_name();
  return touches_complex(node) ? table.find_complex(target) != nullptr : table.contains(target);
}

void lower(ir::Model& model, const LoweringOptions& options) {
  if (options.opset < kMinOpset || options.opset > kMaxOpset) {
    throw InvalidArgument(fmt::format("opset must be between {} and {}, got {}; pass opset={} or {}", kMinOpset,
                                      kMaxOpset, options.opset, options.opset < kMinOpset ? kMinOpset : kMaxOpset,
                                      options.opset < kMinOpset ? "more" : "less"));
  }
  const LoweringTable& table = options.table ? *options.table : LoweringTable::builtin();
  model.opsets[""] = options.opset;
  model.next_symbol = 0;  // torch names no symbol so
  LoweringContext::Shared shared{model, table, options.target, {}, {}};
  separate_complex(*model.graph, table, options.opset);
  lower_graph(shared, *model.graph);
  if (!shared.failures.empty()) throw LoweringError(describe(shared.failures));
  model.graph->erase_dead_nodes();
  model.graph->erase_unused_initializers();
  model.graph->sweep();
}

}  // namespace exportguard::lowering
