#pragma once

#include <string>
#include <string_view>

#include "exportguard/ir/graph.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"
#include "exportguard/lowering/lower.h"

namespace exportguard::lowering {

/// The text of the graph after lowering, without the line of its inputs and initializers.
inline std::string lowered(std::string_view text, int opset = 22) {
  ir::Model model;
  model.graph = ir::parse_graph(text);
  LoweringOptions options;
  options.opset = opset;
  lower(model, options);
  ir::verify(model);
  const std::string printed = ir::print(*model.graph, {.types = false});
  return printed.substr(printed.find('\n') + 1);
}

}  // namespace exportguard::lowering
