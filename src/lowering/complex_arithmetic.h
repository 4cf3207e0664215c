#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "lowering/complex_parts.h"

/// Arithmetic on the real and imaginary parts of tensors, for rules of more than one family.
namespace exportguard::lowering {

/// The first part and the second; none is zero.
using Number = std::pair<Item, std::optional<Item>>;

/// The parts over the larger of them, and that one: squares of the first neither overflow nor vanish.
struct Scaled {
  Parts parts;
  Value* scale;
};

Value* product(ComplexSite& site, Item a, Item b, const ir::Type& type);
Value* of_part(ComplexSite& site, std::string_view function, Value* part);  ///< a function of one tensor
Value* squared_size(ComplexSite& site, const Parts& parts);
Scaled scaled(ComplexSite& site, const Parts& parts);
Value* size_of(ComplexSite& site, const Parts& parts);   ///< |z|
Value* angle_of(ComplexSite& site, const Parts& parts);  ///< in (-π, π]

/// By `op`, `mul.Tensor` or a product of matrices.
Parts multiplied(ComplexSite& site, std::string_view op, const Number& a, const Number& b);
Parts multiplied_parts(ComplexSite& site, const Parts& a, const Parts& b);
Parts inverted(ComplexSite& site, const Parts& parts);

Parts exponential(ComplexSite& site, const Parts& z);
Parts logarithm(ComplexSite& site, const Parts& z);
Parts square_root(ComplexSite& site, const Parts& z);  ///< the root with a real part that is not negative

}  // namespace exportguard::lowering
