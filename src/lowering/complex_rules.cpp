#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <string>
#include <unordered_map>

#include "exportguard/common/errors.h"
#include "lowering/complex_parts.h"

namespace exportguard::lowering {
namespace {

using ir::Argument;

enum class Part { kReal, kImaginary };

Value* choose(const Parts& parts, Part part) { return part == Part::kReal ? parts.real : parts.imaginary; }

// ------------------------------------------------------------------------------------------------ part by part

/// A real operand beside complex ones adds nothing to the imaginary part.
enum class RealOperands { kStay, kAreZeroInImaginary };

Value* operand_of_part(ComplexSite& site, std::size_t i, Part part, RealOperands others) {
  Value* operand = site.node().find_input(i);
  if (operand == nullptr) return nullptr;
  if (is_complex(operand->dtype())) return choose(site.in_parts(*operand), part);
  const bool is_zero =
      part == Part::kImaginary && others == RealOperands::kAreZeroInImaginary && operand->dtype() != DType::kBool;
  return is_zero ? site.zeros_like(*operand) : operand;
}

Argument argument_of_part(const Argument& argument, Part part) {
  if (const auto* number = argument.get_if<std::complex<double>>()) {
    return literal(part == Part::kReal ? number->real() : number->imag());
  }
  if (const auto* dtype = argument.get_if<DType>()) return {real_dtype(*dtype)};
  return argument;
}

bool is_sum(const ComplexSite& site) {
  const std::string_view op = site.node().op();
  return op.starts_with("add.") || op.starts_with("sub.") || op.starts_with("rsub.");
}

std::vector<Value*> run_part(ComplexSite& site, Part part, RealOperands others) {
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < site.node().input_count(); ++i)
    operands.push_back(operand_of_part(site, i, part, others));
  std::vector<Argument> arguments;
  for (const Argument& argument : site.node().arguments()) arguments.push_back(argument_of_part(argument, part));
  const bool has_real_number = others == RealOperands::kAreZeroInImaginary && part == Part::kImaginary &&
                               arguments.size() > 1 && !site.is_complex(1) &&
                               (arguments[1].get_if<double>() || arguments[1].get_if<std::int64_t>());
  if (has_real_number && is_sum(site)) arguments[1] = literal(std::int64_t{0});
  return site.again(operands, std::move(arguments));
}

void separate_parts(ComplexSite& site, RealOperands others) {
  if (is_sum(site) && site.argument(2).get_if<std::complex<double>>()) site.fail("alpha must be a real number");
  const std::vector<Value*> real = run_part(site, Part::kReal, others);
  const std::vector<Value*> imaginary = run_part(site, Part::kImaginary, others);
  for (std::size_t i = 0; i < real.size(); ++i) site.give({real[i], imaginary[i]}, i);
}

/// Operators that move elements, and sums: each part goes its way.
void separate_each(ComplexSite& site) { separate_parts(site, RealOperands::kStay); }
void separate_sum(ComplexSite& site) { separate_parts(site, RealOperands::kAreZeroInImaginary); }

// ------------------------------------------------------------------------------------------------ reading and making

void separate_view_as_complex(ComplexSite& site) {
  const auto part = [&](std::int64_t index) {
    return site.emit("select.int", {&site.value(0), literal(std::int64_t{-1}), literal(index)}, site.output_type());
  };
  site.give({part(0), part(1)});
}

void separate_view_as_real(ComplexSite& site) {
  const Parts parts = site.parts(0);
  const std::vector<Item> axis = {literal(std::int64_t{-1})};
  ir::Type type = parts.real->type();
  if (type.shape) type.shape->push_back(1);
  const auto column = [&](Value* part) { return site.emit("unsqueeze.default", {part, axis[0]}, type); };
  std::vector<ir::NamedAttribute> attributes;
  attributes.emplace_back("axis", std::int64_t{-1});
  site.give_real(
      site.onnx("Concat", {column(parts.real), column(parts.imaginary)}, std::move(attributes), site.output_type()));
}

void separate_complex_of_parts(ComplexSite& site) {
  const ir::Type type = site.output_type();
  Value* zero = site.zeros_like(site.value(1));
  Value* other_zero = site.zeros_like(site.value(0));
  site.give({site.emit("add.Tensor", {&site.value(0), zero}, type),
             site.emit("add.Tensor", {&site.value(1), other_zero}, type)});
}

Value* product(ComplexSite& site, Item a, Item b, const ir::Type& type) {
  if (std::get_if<Value*>(&a) == nullptr) std::swap(a, b);  // the first operand is a tensor
  return site.emit("mul.Tensor", {std::move(a), std::move(b)}, type);
}

void separate_polar(ComplexSite& site) {
  const ir::Type angle_type = site.value(1).type();
  const auto part = [&](std::string_view function) {
    Value* curve = site.emit(function, {&site.value(1)}, angle_type);
    return product(site, &site.value(0), curve, site.output_type());
  };
  site.give({part("cos.default"), part("sin.default")});
}

void separate_real(ComplexSite& site) { site.give_real(site.is_complex(0) ? site.parts(0).real : &site.value(0)); }
void separate_imag(ComplexSite& site) { site.give_real(site.parts(0).imaginary); }

void separate_conj(ComplexSite& site) {
  const Parts parts = site.parts(0);
  site.give({parts.real, site.emit("neg.default", {parts.imaginary}, site.output_type())});
}

Value* squared_size(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  return site.emit("add.Tensor",
                   {product(site, parts.real, parts.real, type), product(site, parts.imaginary, parts.imaginary, type)},
                   type);
}

/// The parts over the larger of them, and that one: squares of the first neither overflow nor vanish.
struct Scaled {
  Parts parts;
  Value* scale;
};

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

void separate_abs(ComplexSite& site) { site.give_real(size_of(site, site.parts(0))); }

void separate_angle(ComplexSite& site) { site.give_real(angle_of(site, site.parts(0))); }

/// A real number that is zero where both parts are.
Value* whether_nonzero(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  return site.emit("add.Tensor",
                   {site.emit("abs.default", {z.real}, type), site.emit("abs.default", {z.imaginary}, type)}, type);
}

/// Operators that ask which elements are not zero.
void separate_truth(ComplexSite& site) {
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < site.node().input_count(); ++i) {
    Value& operand = site.node().input(i);
    operands.push_back(is_complex(operand.dtype()) ? whether_nonzero(site, site.in_parts(operand)) : &operand);
  }
  site.give_real(site.again(operands, site.node().arguments()).front());
}

/// Operators that ask for sizes.
void separate_size(ComplexSite& site) { site.give_real(run_part(site, Part::kReal, RealOperands::kStay).front()); }

/// From real to complex, from complex to real (which drops the imaginary part),
/// or between complex dtypes.
void separate_cast(ComplexSite& site) {
  const auto cast = [&](Value* part) {
    std::vector<Argument> arguments;
    for (const Argument& argument : site.node().arguments()) {
      arguments.push_back(argument_of_part(argument, Part::kReal));
    }
    return site.again({part}, std::move(arguments)).front();
  };
  const bool gives_complex = is_complex(site.node().output().dtype());
  if (site.node().output().dtype() == DType::kBool) return separate_truth(site);
  if (!gives_complex) return site.give_real(cast(site.parts(0).real));
  if (site.is_complex(0)) return site.give({cast(site.parts(0).real), cast(site.parts(0).imaginary)});
  Value* real = cast(&site.value(0));
  site.give({real, site.zeros_like(*real)});
}

// ------------------------------------------------------------------------------------------------ products

using Number = std::pair<Item, std::optional<Item>>;

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

void separate_product(ComplexSite& site) {
  site.give(multiplied(site, site.node().op(), site.number(0), site.number(1)));
}

/// 1 / z = conj(z / m) / |z / m|² / m, where m is the larger part of z.
Parts inverted(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  const Scaled z = scaled(site, parts);
  Value* size = product(site, squared_size(site, z.parts), z.scale, type);
  Value* negative = site.emit("neg.default", {z.parts.imaginary}, type);
  return {site.emit("div.Tensor", {z.parts.real, size}, type), site.emit("div.Tensor", {negative, size}, type)};
}

void separate_reciprocal(ComplexSite& site) { site.give(inverted(site, site.parts(0))); }

void separate_quotient(ComplexSite& site) {
  if (!site.is_complex(1)) return separate_each(site);
  const Parts inverse = inverted(site, site.parts(1));
  site.give(multiplied(site, "mul.Tensor", site.number(0), {inverse.real, inverse.imaginary}));
}

void separate_square(ComplexSite& site) {
  const Number number = site.number(0);
  site.give(multiplied(site, "mul.Tensor", number, number));
}

// ------------------------------------------------------------------------------------------------ functions

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

Parts times_number(ComplexSite& site, const Parts& z, double factor) {
  const ir::Type& type = z.real->type();
  return {product(site, z.real, literal(factor), type), product(site, z.imaginary, literal(factor), type)};
}

Parts plus_number(ComplexSite& site, const Parts& z, double term) {
  return {site.emit("add.Tensor", {z.real, literal(term)}, z.real->type()), z.imaginary};
}

void separate_exp2(ComplexSite& site) {
  site.give(exponential(site, times_number(site, site.parts(0), std::numbers::ln2)));
}

void separate_expm1(ComplexSite& site) { site.give(plus_number(site, exponential(site, site.parts(0)), -1)); }
void separate_log1p(ComplexSite& site) { site.give(logarithm(site, plus_number(site, site.parts(0), 1))); }

void separate_log2(ComplexSite& site) {
  site.give(times_number(site, logarithm(site, site.parts(0)), std::numbers::log2e));
}

void separate_log10(ComplexSite& site) {
  site.give(times_number(site, logarithm(site, site.parts(0)), std::numbers::log10e));
}

void separate_exp(ComplexSite& site) { site.give(exponential(site, site.parts(0))); }
void separate_log(ComplexSite& site) { site.give(logarithm(site, site.parts(0))); }

/// √((|z| + a) / 2) + i sign(b) √((|z| - a) / 2)
void separate_sqrt(ComplexSite& site) {
  const Parts z = site.parts(0);
  const ir::Type& type = z.real->type();
  Value* size = size_of(site, z);
  const auto root = [&](std::string_view op) {
    Value* twice = of_part(site, "relu.default", site.emit(op, {size, z.real}, type));  // rounding may go below zero
    return of_part(site, "sqrt.default", site.emit("mul.Tensor", {twice, literal(0.5)}, type));
  };
  site.give({root("add.Tensor"), site.emit("copysign.Tensor", {root("sub.Tensor"), z.imaginary}, type)});
}

/// f(a) g(b) and f'(a) g'(b): sines and cosines of complex numbers are products of real ones.
struct Curves {
  std::string_view of_real;
  std::string_view of_imaginary;
};

Value* product_of(ComplexSite& site, const Parts& z, const Curves& curves) {
  return product(site, of_part(site, curves.of_real, z.real), of_part(site, curves.of_imaginary, z.imaginary),
                 z.real->type());
}

Parts sine(ComplexSite& site, const Parts& z) {
  return {product_of(site, z, {"sin.default", "cosh.default"}), product_of(site, z, {"cos.default", "sinh.default"})};
}

Parts cosine(ComplexSite& site, const Parts& z) {
  Value* imaginary = product_of(site, z, {"sin.default", "sinh.default"});
  return {product_of(site, z, {"cos.default", "cosh.default"}), of_part(site, "neg.default", imaginary)};
}

Parts hyperbolic_sine(ComplexSite& site, const Parts& z) {
  return {product_of(site, z, {"sinh.default", "cos.default"}), product_of(site, z, {"cosh.default", "sin.default"})};
}

Parts hyperbolic_cosine(ComplexSite& site, const Parts& z) {
  return {product_of(site, z, {"cosh.default", "cos.default"}), product_of(site, z, {"sinh.default", "sin.default"})};
}

Parts multiplied_parts(ComplexSite& site, const Parts& a, const Parts& b) {
  return multiplied(site, "mul.Tensor", {a.real, a.imaginary}, {b.real, b.imaginary});
}

void separate_sin(ComplexSite& site) { site.give(sine(site, site.parts(0))); }
void separate_cos(ComplexSite& site) { site.give(cosine(site, site.parts(0))); }
void separate_sinh(ComplexSite& site) { site.give(hyperbolic_sine(site, site.parts(0))); }
void separate_cosh(ComplexSite& site) { site.give(hyperbolic_cosine(site, site.parts(0))); }

/// tanh(a + bi) = (tanh a + i tan b) / (1 + i tanh a tan b), which does not overflow.
Parts hyperbolic_tangent(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  Value* a = of_part(site, "tanh.default", z.real);
  Value* b = of_part(site, "tan.default", z.imaginary);
  Value* ones = of_part(site, "ones_like.default", a);
  return multiplied_parts(site, {a, b}, inverted(site, {ones, product(site, a, b, type)}));
}

void separate_tanh(ComplexSite& site) { site.give(hyperbolic_tangent(site, site.parts(0))); }

/// 1 / (1 + exp(-z))
void separate_sigmoid(ComplexSite& site) {
  const Parts z = site.parts(0);
  const ir::Type& type = z.real->type();
  const Parts tail =
      exponential(site, {of_part(site, "neg.default", z.real), of_part(site, "neg.default", z.imaginary)});
  Value* real = site.emit("add.Tensor", {tail.real, literal(std::int64_t{1})}, type);
  site.give(inverted(site, {real, tail.imaginary}));
}

/// z / |z|, 0 at 0.
void separate_sgn(ComplexSite& site) {
  const Scaled z = scaled(site, site.parts(0));
  const ir::Type& type = z.scale->type();
  Value* size = of_part(site, "sqrt.default", squared_size(site, z.parts));
  Value* is_zero = site.emit("eq.Scalar", {size, literal(std::int64_t{0})}, ir::Type::tensor(DType::kBool, type.shape));
  size = site.emit("where.self", {is_zero, of_part(site, "ones_like.default", size), size}, type);
  const auto over = [&](Value* part) { return site.emit("div.Tensor", {part, size}, type); };
  site.give({over(z.parts.real), over(z.parts.imaginary)});
}

// ------------------------------------------------------------------------------------------------ powers

constexpr std::int64_t kMostFactors = 16;

Parts as_parts(ComplexSite& site, std::size_t argument) {
  if (site.is_complex(argument)) return site.parts(argument);
  Value& real = site.value(argument);
  return {&real, site.zeros_like(real)};
}

Parts whole_power(ComplexSite& site, const Parts& z, std::int64_t exponent) {
  Parts power = z;
  for (std::int64_t i = 1; i < exponent; ++i) power = multiplied_parts(site, power, z);
  return power;
}

/// exp(w log z), where w is what argument 1 is.
Parts general_power(ComplexSite& site, const Parts& z) {
  const Parts log = logarithm(site, z);
  return exponential(site, multiplied(site, "mul.Tensor", {log.real, log.imaginary}, site.number(1)));
}

/// Small whole exponents are products; every other power is that of a number that is not 0.
void separate_power(ComplexSite& site) {
  const Parts z = as_parts(site, 0);
  const auto* whole = site.argument(1).get_if<std::int64_t>();
  const auto* number = site.argument(1).get_if<double>();
  const double exponent = whole ? static_cast<double>(*whole) : number ? *number : 0.5;
  const bool is_product = exponent == std::floor(exponent) && exponent != 0 && std::abs(exponent) <= kMostFactors;
  if (!is_product) return site.give(general_power(site, z));
  const Parts power = whole_power(site, z, static_cast<std::int64_t>(std::abs(exponent)));
  site.give(exponent < 0 ? inverted(site, power) : power);
}

// ------------------------------------------------------------------------------------------------ questions, and
// numbers beside tensors

/// Of each part whether it holds, and both answers together.
void ask_parts(ComplexSite& site, std::string_view question, std::string_view together) {
  const Parts z = site.parts(0);
  const ir::Type type = site.node().output().type();
  site.give_real(
      site.emit(together, {site.emit(question, {z.real}, type), site.emit(question, {z.imaginary}, type)}, type));
}

void separate_isnan(ComplexSite& site) { ask_parts(site, "isnan.default", "logical_or.default"); }
void separate_isinf(ComplexSite& site) { ask_parts(site, "isinf.default", "logical_or.default"); }
void separate_isfinite(ComplexSite& site) { ask_parts(site, "isfinite.default", "logical_and.default"); }

Item or_zero(const std::optional<Item>& part) { return part ? *part : Item(literal(std::int64_t{0})); }

void compare(ComplexSite& site, std::string_view question, std::string_view together) {
  Number a = site.number(0);
  Number b = site.number(1);
  if (std::get_if<Value*>(&a.first) == nullptr) std::swap(a, b);
  const ir::Type type = site.node().output().type();
  const auto ask = [&](Item x, Item y) {
    if (std::get_if<Value*>(&x) == nullptr) std::swap(x, y);
    const bool is_tensor = std::get_if<Value*>(&y) != nullptr;
    return site.emit(std::string(question) + (is_tensor ? ".Tensor" : ".Scalar"), {std::move(x), std::move(y)}, type);
  };
  site.give_real(site.emit(together, {ask(a.first, b.first), ask(or_zero(a.second), or_zero(b.second))}, type));
}

void separate_eq(ComplexSite& site) { compare(site, "eq", "logical_and.default"); }
void separate_ne(ComplexSite& site) { compare(site, "ne", "logical_or.default"); }

/// `full` and the like: a real number leaves the imaginary part zero.
void separate_creation(ComplexSite& site) {
  Value* real = run_part(site, Part::kReal, RealOperands::kStay).front();
  const auto& arguments = site.node().arguments();
  const bool has_number = std::ranges::any_of(
      arguments, [](const Argument& argument) { return argument.get_if<std::complex<double>>() != nullptr; });
  site.give(
      {real, has_number ? run_part(site, Part::kImaginary, RealOperands::kStay).front() : site.zeros_like(*real)});
}

/// A check of what the conversion knows leaves nothing behind.
void separate_assertion(ComplexSite&) {}

// ------------------------------------------------------------------------------------------------ which rule

const std::vector<ComplexClaim>& claims() {
  static const std::vector<ComplexClaim> table = {
      {separate_each,
       {"aten.view.default",
        "aten.reshape.default",
        "aten._unsafe_view.default",
        "aten.unsqueeze.default",
        "aten.squeeze.default",
        "aten.squeeze.dim",
        "aten.squeeze.dims",
        "aten.transpose.int",
        "aten.permute.default",
        "aten.t.default",
        "aten.expand.default",
        "aten.expand_as.default",
        "aten.select.int",
        "aten.slice.Tensor",
        "aten.clone.default",
        "aten.contiguous.default",
        "aten.alias.default",
        "aten.detach.default",
        "aten.flatten.using_ints",
        "aten.unflatten.int",
        "aten.repeat.default",
        "aten.flip.default",
        "aten.roll.default",
        "aten.index_select.default",
        "aten.index.Tensor",
        "aten.gather.default",
        "aten.embedding.default",
        "aten.split.Tensor",
        "aten.split_with_sizes.default",
        "aten.chunk.default",
        "aten.unbind.int",
        "aten.neg.default",
        "aten.sum.default",
        "aten.sum.dim_IntList",
        "aten.mean.default",
        "aten.mean.dim",
        "aten.cumsum.default",
        "aten.diagonal.default",
        "aten.movedim.intlist",
        "aten.movedim.int",
        "aten.constant_pad_nd.default",
        "aten.tril.default",
        "aten.triu.default",
        "aten.narrow.default",
        "aten.view_as.default",
        "aten.reshape_as.default",
        "aten.lift_fresh_copy.default",
        "aten.zeros_like.default",
        "aten.ravel.default",
        "aten.trace.default",
        "aten.resolve_neg.default",
        "aten.numpy_T.default",
        "aten.mT.default"}},
      {separate_each,
       {"aten.slice_scatter.default", "aten.select_scatter.default", "aten.index_put.default", "aten.scatter.src",
        "aten.index_copy.default", "aten.diag_embed.default", "aten.unfold.default", "aten.tile.default",
        "aten.squeeze_copy.default", "aten.repeat_interleave.self_int", "aten.as_strided.default",
        "aten.atleast_1d.default", "aten.unsafe_split.Tensor", "aten.tensor_split.sections", "aten.swapaxes.default",
        "aten.masked_select.default", "aten.rot90.default", "aten.fliplr.default"}},
      {separate_creation,
       {"aten.full.default", "aten.full_like.default", "aten.ones.default", "aten.ones_like.default",
        "aten.zeros.default", "aten.new_full.default", "aten.new_ones.default", "aten.new_zeros.default",
        "aten.scalar_tensor.default", "aten.eye.default", "aten.eye.m", "aten.empty.memory_format",
        "aten.empty_like.default"}},
      {separate_truth,
       {"aten.nonzero.default", "aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim",
        "aten.all.dims", "aten.logical_not.default", "aten.logical_and.default", "aten.logical_or.default",
        "aten.logical_xor.default", "aten.count_nonzero.default", "aten.count_nonzero.dim_IntList"}},
      {separate_size, {"aten.sym_size.int", "aten.sym_numel.default"}},
      {separate_exp2, {"aten.exp2.default"}},
      {separate_expm1, {"aten.expm1.default"}},
      {separate_log1p, {"aten.log1p.default"}},
      {separate_log2, {"aten.log2.default"}},
      {separate_log10, {"aten.log10.default"}},
      {separate_log, {"aten.log.default"}},
      {separate_sqrt, {"aten.sqrt.default"}},
      {separate_sin, {"aten.sin.default"}},
      {separate_cos, {"aten.cos.default"}},
      {separate_sinh, {"aten.sinh.default"}},
      {separate_cosh, {"aten.cosh.default"}},
      {separate_tanh, {"aten.tanh.default"}},
      {separate_sigmoid, {"aten.sigmoid.default"}},
      {separate_sgn, {"aten.sgn.default"}},
      {separate_power, {"aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor"}},
      {separate_isnan, {"aten.isnan.default"}},
      {separate_isinf, {"aten.isinf.default"}},
      {separate_isfinite, {"aten.isfinite.default"}},
      {separate_eq, {"aten.eq.Tensor", "aten.eq.Scalar"}},
      {separate_ne, {"aten.ne.Tensor", "aten.ne.Scalar"}},
      {separate_sum,
       {"aten.add.Tensor", "aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar", "aten.rsub.Tensor",
        "aten.sub.Tensor", "aten.cat.default", "aten.stack.default", "aten.where.self"}},
      {separate_product,
       {"aten.mul.Tensor", "aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default",
        "aten.dot.default"}},
      {separate_quotient, {"aten.div.Tensor"}},
      {separate_reciprocal, {"aten.reciprocal.default"}},
      {separate_square, {"aten.square.default"}},
      {separate_exp, {"aten.exp.default"}},
      {separate_view_as_complex, {"aten.view_as_complex.default"}},
      {separate_view_as_real, {"aten.view_as_real.default"}},
      {separate_complex_of_parts, {"aten.complex.default"}},
      {separate_polar, {"aten.polar.default"}},
      {separate_real, {"aten.real.default"}},
      {separate_imag, {"aten.imag.default"}},
      {separate_conj,
       {"aten._conj.default", "aten.conj.default", "aten._conj_physical.default", "aten.conj_physical.default"}},
      {separate_abs, {"aten.abs.default"}},
      {separate_angle, {"aten.angle.default"}},
      {separate_cast,
       {"aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
        "prims.convert_element_type.default", "aten.resolve_conj.default"}},
      {separate_assertion, {"aten._assert_tensor_metadata.default"}},
      {separate_stft, {"aten.stft.default"}},
      {separate_fft_c2c, {"aten._fft_c2c.default", "prims.fft_c2c.default"}},
      {separate_fft_r2c, {"aten._fft_r2c.default", "prims.fft_r2c.default"}},
      {separate_fft_c2r, {"aten._fft_c2r.default", "prims.fft_c2r.default"}},
  };
  return table;
}

}  // namespace

std::unordered_map<std::string_view, ComplexRule> complex_rules_by_target(const std::vector<ComplexClaim>& claims) {
  std::unordered_map<std::string_view, ComplexRule> rules;
  for (const ComplexClaim& claim : claims) {
    for (const std::string_view target : claim.targets) {
      const bool is_new = rules.emplace(target, claim.rule).second;
      if (!is_new) throw InvalidArgument(fmt::format("{} has a rule for complex tensors already; keep one", target));
    }
  }
  return rules;
}

ComplexRule find_complex_rule(std::string_view target) {
  static const std::unordered_map<std::string_view, ComplexRule> rules = complex_rules_by_target(claims());
  const auto found = rules.find(target);
  return found == rules.end() ? nullptr : found->second;
}

}  // namespace exportguard::lowering
