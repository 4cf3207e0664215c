#pragma once

#include <optional>
#include <vector>

#include "exportguard/optimizer/facts.h"

namespace exportguard::optimizer {

/// A product taken apart, in whatever order it was written: number · factors. x / c is a product with 1 / c, x ^ 2 and
/// x ^ 3 are x as often.
struct Product {
  double number = 1;
  std::vector<Value*> factors;  ///< none of them a product; in the order of the operands, at most `kMostFactors`
  static constexpr std::size_t kMostFactors = 8;

  /// The number, if the factors are these in any order.
  std::optional<double> of(std::vector<const Value*> wanted) const;
};

/// A value that is no product is a product of itself. Constants of several elements are factors, and so is `whole`,
/// even if it is a product. A number may stretch what it multiplies: compare shapes.
Product product_of(const Facts& facts, Value* value, const Value* whole = nullptr);

/// Whether float32 has the number, positive, in full precision: what attributes of operators may say.
bool is_scale(double number);

/// The other summand of c + y or y + c, for that number c; null if the value is something else.
Value* summand_beside(const Facts& facts, const Value* value, double number);

/// Whether a constant was meant to be `expected`: equal up to the rounding of the dtype that it is written in.
bool is_about(double number, double expected, DType dtype);

/// The same of two numbers that were rounded once.
bool is_same_rounded(double number, double expected, DType dtype);

}  // namespace exportguard::optimizer
