#include "lowering/complex_arithmetic.h"

namespace exportguard::lowering {

Value* product(ComplexSite& site, Item a, Item b, const ir::Type& type) {
  if (std::get_if<Value*>(&a) == nullptr) std::swap(a, b);  // the first operand is a tensor
  return site.emit("mul.Tensor", {std::move(a), std::move(b)}, type);
}

Value* squared_size(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  return site.emit("add.Tensor",
                   {product(site, parts.real, parts.real, type), product(site, parts.imaginary, parts.imaginary, type)},
                   type);
}

Scaled scaled(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  const auto size = [&](Value* part) { return site.emit("abs.default", {part}, type); };
  Value* larger = site.emit("maximum.default", {size(parts.real), size(parts.imaginary)}, type);
  ir::Type flags = type;
  flags.dtype = DType::kBool;
  Value* is_plain = site.emit("gt.Scalar", {larger, literal(std::int64_t{0})}, flags);
  Value* ones = site.emit("ones_like.default", {larger}, type);
  Value* scale = site.emit("where.self", {is_plain, larger, ones}, type);
  const auto over = [&](Value* part) { return site.emit("div.Tensor", {part, scale}, type); };
  return {{over(parts.real), over(parts.imaginary)}, scale};
}

/// |z|, which is infinite where one part is.
Value* size_of(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  const Scaled z = scaled(site, parts);
  Value* root = site.emit("sqrt.default", {squared_size(site, z.parts)}, type);
  ir::Type flags = type;
  flags.dtype = DType::kBool;
  Value* is_infinite = site.emit("isinf.default", {z.scale}, flags);
  return site.emit("where.self", {is_infinite, z.scale, product(site, root, z.scale, type)}, type);
}

Value* angle_of(ComplexSite& site, const Parts& parts) {
  return site.emit("atan2.default", {parts.imaginary, parts.real}, parts.real->type());
}

/// (a + bi)(c + di); a part that is missing is zero.
Parts multiplied(ComplexSite& site, std::string_view op, const Number& a, const Number& b) {
  const ir::Type type = site.output_type();
  const auto times = [&](const Item& x, const Item& y) {
    const bool is_product = op == "mul.Tensor";
    return is_product ? product(site, x, y, type) : site.emit(op, {x, y}, type);
  };
  Value* real = times(a.first, b.first);
  if (!b.second) return {real, times(*a.second, b.first)};
  if (!a.second) return {real, times(a.first, *b.second)};
  Value* cross = site.emit("add.Tensor", {times(a.first, *b.second), times(*a.second, b.first)}, type);
  return {site.emit("sub.Tensor", {real, times(*a.second, *b.second)}, type), cross};
}

/// 1 / z = conj(z / m) / |z / m|² / m, where m is the larger part of z.
Parts inverted(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  const Scaled z = scaled(site, parts);
  Value* size = product(site, squared_size(site, z.parts), z.scale, type);
  Value* negative = site.emit("neg.default", {z.parts.imaginary}, type);
  return {site.emit("div.Tensor", {z.parts.real, size}, type), site.emit("div.Tensor", {negative, size}, type)};
}

Value* of_part(ComplexSite& site, std::string_view function, Value* part) {
  return site.emit(function, {part}, part->type());
}

/// exp(a + bi) = exp(a) (cos b + i sin b)
Parts exponential(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  Value* size = of_part(site, "exp.default", z.real);
  return {product(site, size, of_part(site, "cos.default", z.imaginary), type),
          product(site, size, of_part(site, "sin.default", z.imaginary), type)};
}

Parts logarithm(ComplexSite& site, const Parts& z) {
  return {of_part(site, "log.default", size_of(site, z)), angle_of(site, z)};
}

Parts multiplied_parts(ComplexSite& site, const Parts& a, const Parts& b) {
  return multiplied(site, "mul.Tensor", {a.real, a.imaginary}, {b.real, b.imaginary});
}

/// √((|z| + a) / 2) + i sign(b) √((|z| - a) / 2)
Parts square_root(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  ir::Type flags = type;
  flags.dtype = DType::kBool;
  Value* height = of_part(site, "abs.default", z.imaginary);
  Value* sum = site.emit("add.Tensor", {size_of(site, z), of_part(site, "abs.default", z.real)}, type);
  Value* larger = of_part(site, "sqrt.default", product(site, sum, literal(0.5), type));
  // The other part is |b| over twice the larger one: a difference would lose digits. Where that is no number, |b| is 0
  // or infinite.
  Value* ratio = site.emit("div.Tensor", {product(site, height, literal(0.5), type), larger}, type);
  Value* is_plain = site.emit("gt.Scalar", {larger, literal(std::int64_t{0})}, flags);
  Value* is_finite = site.emit("isfinite.default", {height}, flags);
  Value* is_ratio = site.emit("logical_and.default", {is_plain, is_finite}, flags);
  Value* smaller = site.emit("where.self", {is_ratio, ratio, height}, type);
  Value* is_left = site.emit("lt.Scalar", {z.real, literal(std::int64_t{0})}, flags);
  const auto either = [&](Value* left, Value* right) { return site.emit("where.self", {is_left, left, right}, type); };
  return {either(smaller, larger), site.emit("copysign.Tensor", {either(larger, smaller), z.imaginary}, type)};
}

}  // namespace exportguard::lowering
