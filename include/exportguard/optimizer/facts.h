#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "exportguard/ir/graph.h"
#include "exportguard/optimizer/pattern.h"

namespace exportguard::optimizer {

using ir::Value;

/// What a pattern may ask about a graph while it matches. Everything here is implied by constants, types and operators;
/// what is not known is nothing.
class Facts {
 public:
  Facts(int opset, Target target, std::int64_t positions = 0) : opset_(opset), target_(target), positions_(positions) {}

  int opset() const { return opset_; }
  Target target() const { return target_; }
  /// The most positions that a text has; 0 if that is not known.
  std::int64_t positions() const { return positions_; }

  /// The elements of an initializer or of a Constant node; null if the value is none.
  const ir::Tensor* constant(const Value* value) const;
  /// Elements of a constant of integers with at most 64 of them.
  std::optional<std::vector<std::int64_t>> ints(const Value* value) const;
  /// The element of a numeric constant that has just one, whatever its rank.
  std::optional<double> number(const Value* value) const;
  bool is_number(const Value* value, double expected) const { return number(value) == expected; }

  /// What an integer tensor of rank 0 or 1 holds, as expressions over the names of sizes. Sizes are never negative.
  const std::optional<std::vector<SymExpr>>& sizes(const Value* value) const;

 private:
  std::optional<std::vector<SymExpr>> computed_sizes(const Value* value) const;

  int opset_;
  Target target_;
  std::int64_t positions_;
  mutable std::unordered_map<const Value*, std::optional<std::vector<SymExpr>>> sizes_;
};

// ------------------------------------------------------------------------------------------------ nodes

/// The node that gives the value if it is that operator of the ONNX domain; else null.
ir::Node* producer_of(const Value* value, std::string_view op);
std::int64_t int_attribute(const ir::Node& node, std::string_view name, std::int64_t fallback);
double float_attribute(const ir::Node& node, std::string_view name, double fallback);
/// Null if there is none.
const std::vector<std::int64_t>* find_ints_attribute(const ir::Node& node, std::string_view name);

/// A copy of every attribute but for nested graphs.
std::vector<ir::NamedAttribute> attributes_of(const ir::Node& node);

/// Whether just one operand reads the value.
inline bool has_one_use(const Value& value) { return value.use_count() == 1; }
/// The operand of a binary operator beside `operand`; null if `operand` is not an operand.
Value* other_operand(const ir::Node& node, const Value* operand);

// ------------------------------------------------------------------------------------------------ types

inline const std::optional<ir::Shape>& shape_of(const Value& value) { return value.type().shape; }
inline bool has_rank(const Value& value, std::size_t rank) { return value.type().rank() == rank; }
/// Both shapes are known and equal as expressions.
bool same_shape(const Value& a, const Value& b);
/// The size of an axis, counted from the end if negative; nothing if the rank is unknown or too small.
std::optional<ir::Dim> dim(const Value& value, std::int64_t axis);
/// An axis counted from 0; nothing without a rank or out of range.
std::optional<std::int64_t> axis_from_start(const Value& value, std::int64_t axis);
inline bool is_narrow_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

}  // namespace exportguard::optimizer
