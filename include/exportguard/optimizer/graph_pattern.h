#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exportguard/ir/builder.h"
#include "exportguard/optimizer/pattern.h"

namespace exportguard::optimizer {

/// What an input of a match graph stands for.
struct Hole {
  bool is_constant = false;  ///< an initializer, or the output of a Constant node
  /// Without a dtype any, without a shape any. Symbols stand for sizes: the same symbol for the same size.
  ir::Type type;
  /// What a list of integers holds: numbers, and symbols as in shapes.
  std::optional<ir::Elements> elements;
};

/// An attribute that may have any value, or none: that of the nodes of an operator in the match graph.
struct AttributeHole {
  std::string name;       ///< what it is called in `Captures`
  std::string op;         ///< `LeakyRelu`, `com.microsoft::QuickGelu`
  std::string attribute;  ///< `alpha`
};

/// What the holes of a match graph met.
struct Captures {
  ir::Node* root = nullptr;        ///< the last node of what matched, in front of which the replacement is written
  std::vector<ir::Value*> values;  ///< for each input of the match graph
  std::map<std::string, SymExpr> sizes;                    ///< for each symbol
  std::map<std::string, const ir::Attribute*> attributes;  ///< for each attribute hole; null: the node has none
};

/// A rule written as two graphs. Inputs of the match graph are holes, its outputs are what is replaced.
///
/// A node meets one of the same operator with the same operands, tried in both orders where the order does not matter;
/// its attributes are those of the match graph, as they are written, and those with a hole. A number in the match graph
/// meets a constant with that number in its own dtype. What is computed between and is no output may be read by nothing
/// else.
struct GraphPattern {
  std::string name;
  std::string matches;                     ///< what it looks for, for people
  std::string makes;                       ///< what it puts there
  std::shared_ptr<const ir::Model> match;  ///< its main graph; without nested graphs
  std::vector<Hole> holes;                 ///< one for each input of the match graph; empty: any value
  std::vector<AttributeHole> attributes;
  /// Why not, or an empty text. It must not change the graph. Null: always.
  std::function<std::string(const Captures&)> condition;
  /// Writes what comes in its place, and returns a value for each output. What it throws leaves the graph as it was.
  std::function<std::vector<ir::Value*>(ir::Builder&, const Captures&)> replacement;
  Stage stage = Stage::kFuse;
  int opset = 18;  ///< the first that has the operators of the replacement
  Target target = Target::kPortable;
};

/// The pattern for a `PatternTable`.
/// @throws InvalidArgument if the match graph has no node, a nested graph, an output that no node gives, an input that
///   no node reads, or outputs of which none is computed from all the nodes; if there is no replacement, or the holes
///   are not as many as the inputs.
Pattern pattern_of(GraphPattern graph_pattern);

}  // namespace exportguard::optimizer
