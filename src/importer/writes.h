#pragma once

#include <vector>

#include "exportguard/ir/graph.h"
#include "importer/torch_call.h"
#include "operators/facts.h"

namespace exportguard::importer {

/// What a write computes, without writing.
struct WriteResults {
  std::vector<ir::Value*> written;  ///< new elements for each of `facts.written`, one for each tensor of a list
  std::vector<ir::Value*> fresh;    ///< for each result of the node: what it is; null where it is a written argument
};

/// Puts the functional form of `node` in front of it. A custom operator without one stays as it is and gets one more
/// output for each tensor that it writes.
/// @throws ImportError for an operator that changes memory in a way that has no functional form (`resize_`).
WriteResults functional_form(ir::Node& node, const operators::OperatorFacts& facts);

/// `value` broadcast to the shape and converted to the dtype of `like`.
ir::Value& fitted(ir::Value& value, ir::Value& like, const TorchCall& call);

}  // namespace exportguard::importer
