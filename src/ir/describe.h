#pragma once

#include <string>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// For errors: `MatMul %y (model.layers.3.mlp, modeling_x.py:123)`, as far as each part is known.
std::string describe(const Node& node);

/// For errors: `%y`, `input 2 of graph 'main'`, `output 1 of Split (…)`.
std::string describe(const Value& value);

/// Whether `inner` is `outer` or nested in it at any depth.
bool is_within(const Graph& inner, const Graph& outer);

/// @throws GraphError if a node of `reader` cannot read `value`: it was erased, or its graph lies elsewhere in the same
/// tree of nested graphs. A graph that is no node's attribute yet may read any other tree: it may become a body there.
void require_readable(const Graph& reader, const Value& value);

}  // namespace exportguard::ir
