#pragma once

#include <functional>
#include <optional>

#include "exportguard/ir/tensor.h"
#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {

/// A value [batch, sequence, columns] that has for each token a row of numbers which its position alone decides.
struct RowsByPosition {
  Value* positions = nullptr;                               ///< int64 [batch, sequence]
  Value* table = nullptr;                                   ///< [rows, columns] they are looked up in; null if computed
  std::function<ir::Tensor(std::int64_t rows)> first_rows;  ///< [rows, columns] for 0, 1, …; empty if looked up
};

/// Reads constants looked up by positions, and floats computed from positions and constants number by number: products,
/// sums, cosines, sines and casts, as the tables of rotary embeddings are. Nothing for any other value.
std::optional<RowsByPosition> rows_by_position(const Facts& facts, const Value& value);

}  // namespace exportguard::optimizer
