#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

struct PrintOptions {
  bool sources = false;           ///< `# model.layers.3.mlp, modeling_x.py:123` behind each node
  bool types = true;              ///< `%y: f32[2,3] = …`, where the type is known
  std::size_t max_elements = 16;  ///< larger initializers print as `f32[1024,64]{...}`, which cannot be parsed
};

/// The graph as text; the text of `parse_graph(print(g))` is the same again. The format:
///
///     graph(%x: f32[batch,3], %w: f32[3,4] = {1, 2, …}):        # an initializer has elements
///       %m: f32[batch,4] = MatMul(%x, %w)
///       %s = Softmax(%m) {axis=-1}                               # ONNX: operands, then attributes
///       %t, %i = TopK(%s, _) {axis=-1, largest=1}                # _ is an operand that is left out
///       %a = aten.add.Tensor(%m, %m, 2.5)                        # torch level: arguments by position
///       %c = aten.cat.default([%m, %m], 1)
///       %d = aten.to.dtype(%c, dtype:f16, true, false, None)     # literals: 1, 2.0, true, None, "text", @cpu
///       %o = If(%p) {then_branch=graph():
///           %k = Identity(%m)
///           return (%k), else_branch=graph():
///           return (%m)}
///       return (%s, %t as top)                                   # `as` gives an output its own name
///
/// Values print under their name, made unique in the whole tree of graphs; ones without a name as %0, %1, ….
/// A name with other characters than letters, digits and `_ . $ / -` is quoted: `%"a b"`, `"my domain"::Op`.
///
/// Further literals: `nan`, `-inf`, `complex(1.0, -2.0)`; in attributes `f32[2]{1.0, 2.0}` (a tensor), `type:f32[2]`,
/// and `[]`, `floats[]`, `strings[]` for lists without elements. Operands that no argument names follow a semicolon,
/// `higher_order.cond(%p; %x)`. Types are those of `Type::str`. Names of graphs are not part of the text, nor are
/// sources but for the comments.
std::string print(const Graph& graph, const PrintOptions& options = {});

/// `opset 22`, `opset com.microsoft 1`, `metadata "key" = "value"`, the graph, then
/// `function domain::name(...) attributes(alpha) opsets(22, com.microsoft 1):` for each function.
std::string print(const Model& model, const PrintOptions& options = {});

/// @throws ParseError with line and column, for an undefined value or one defined twice as well.
std::unique_ptr<Graph> parse_graph(std::string_view text);
Model parse_model(std::string_view text);

/// `print(parse_graph(text))`: what a test compares with.
std::string normalize(std::string_view text);

}  // namespace exportguard::ir
