#pragma once

#include <string>
#include <string_view>

#include "exportguard/importer/functionalize.h"
#include "exportguard/ir/text.h"
#include "exportguard/ir/verify.h"

namespace exportguard::importer {

/// The graph without side effects, as text.
inline std::string functional(std::string_view text) {
  const auto graph = ir::parse_graph(text);
  functionalize(*graph);
  ir::verify(*graph);
  return ir::print(*graph);
}

}  // namespace exportguard::importer
