#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exportguard/common/symbolic.h"
#include "exportguard/ir/graph.h"

namespace exportguard::lowering {

/// A condition on the sizes of a graph's inputs outside of which its results are not those of the model.
struct SizeCheck {
  struct Relation {
    std::string op;  ///< Equal, Less, LessOrEqual, Greater or GreaterOrEqual, of ONNX
    SymExpr first, second;
    bool holds = true;  ///< whether it is that, or not
  };
  /// The size of one axis of an input, and the symbol that stands for it in the relations.
  struct Size {
    std::string symbol;
    std::string input;
    std::int64_t axis = 0;
  };

  std::string condition;         ///< as users read it, `h == w`
  std::vector<Relation> any_of;  ///< it holds where one of them does
  std::vector<Size> sizes;
};

/// What a user calls an axis of an input, whatever its type says: axes that a trace found equal have one symbol there.
struct AxisName {
  std::string input;
  std::int64_t axis = 0;
  std::string name;
};

/// Makes a graph stop where one of the conditions does not hold: the smallest input that anything reads (an output if
/// nothing reads any) is reshaped to its own sizes, and elsewhere to ones that no tensor has, which every runtime
/// refuses (ONNX has no assertion). The node's name says what was asked for, as a runtime's error does. A last step on
/// an ONNX graph, in place: the sizes are those of each axis, whatever the symbols in its type.
/// Types say no more than the conditions do: axes that one of them is about go by their `names` afterwards, and where
/// it holds for sizes that are not equal (a single entry is broadcast), results whose sizes were one symbol have none.
/// Returns how many conditions are checked; one that has no counterpart in ONNX is not.
/// @throws GraphError for an input that the graph does not have.
std::size_t refuse_other_sizes(ir::Model& model, const std::vector<SizeCheck>& checks,
                               const std::vector<AxisName>& names = {});

}  // namespace exportguard::lowering
