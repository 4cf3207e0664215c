#pragma once

#include <functional>
#include <optional>

#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {

/// A table of cosines or sines for half of the axis that is rotated.
struct Half {
  ir::Shape given;  ///< of the elements as they are
  ir::Shape shape;  ///< the same, but for axes of size 1
  std::function<Value&(Rewriter&)> write;
};

/// Two numbers of the last axis of x turned together, for each pair of them.
struct Rotation {
  Value* from = nullptr;  ///< x, or what has its elements in their order
  ir::Shape shape;        ///< of x
  Half cos;
  Half sin;
  bool is_interleaved = false;  ///< a number and its neighbour turn together, not one of each half
};

/// The table itself; nothing if its shape is not known.
std::optional<Half> whole_table(Value& table);

/// A constant whose numbers come twice along the last axis, one half like the other or each beside itself, maybe looked
/// up, cut and cast on the way; nothing if the value is something else.
std::optional<Half> half_of_constant(const Facts& facts, Value* value, bool is_interleaved);

std::int64_t last_axis(const Value& value);
/// Whether `joined`, the result of a Concat, is joined along its last axis.
bool joins_last_axis(const Value& joined, const ir::Node& concat);
/// What gets a last axis of size 1 here, maybe beside others; null if the value is something else.
Value* before_last_axis(const Value* value);

/// Whether an operator stands for `node`, whose result is the rotation, or the same elements as [..., n, 2].
Match match_rotation(ir::Node& node, const Rotation& rotation);

std::vector<ir::NamedAttribute> turning(bool is_interleaved);

}  // namespace exportguard::optimizer
