#include <algorithm>
#include <complex>
#include <string>

#include "lowering/complex_parts.h"

namespace exportguard::lowering {
namespace {

using ir::Argument;

enum class Part { kReal, kImaginary };

Value* choose(const Parts& parts, Part part) { return part == Part::kReal ? parts.real : parts.imaginary; }

// ------------------------------------------------------------------------------------------------
// part by part

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

std::vector<Value*> run_part(ComplexSite& site, Part part, RealOperands others) {
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < site.node().input_count(); ++i)
    operands.push_back(operand_of_part(site, i, part, others));
  std::vector<Argument> arguments;
  for (const Argument& argument : site.node().arguments()) arguments.push_back(argument_of_part(argument, part));
  const bool has_real_number = others == RealOperands::kAreZeroInImaginary && part == Part::kImaginary &&
                               arguments.size() > 1 && !site.is_complex(1) &&
                               (arguments[1].get_if<double>() || arguments[1].get_if<std::int64_t>());
  const bool is_sum = site.node().op().starts_with("add.") || site.node().op().starts_with("sub.");
  if (has_real_number && is_sum) arguments[1] = literal(std::int64_t{0});
  return site.again(operands, std::move(arguments));
}

void separate_parts(ComplexSite& site, RealOperands others) {
  const std::vector<Value*> real = run_part(site, Part::kReal, others);
  const std::vector<Value*> imaginary = run_part(site, Part::kImaginary, others);
  for (std::size_t i = 0; i < real.size(); ++i) site.give({real[i], imaginary[i]}, i);
}

/// Operators that move elements, and sums: each part goes its way.
void separate_each(ComplexSite& site) { separate_parts(site, RealOperands::kStay); }
void separate_sum(ComplexSite& site) { separate_parts(site, RealOperands::kAreZeroInImaginary); }

// ------------------------------------------------------------------------------------------------
// reading and making

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
  site.give_real(site.onnx(
      "Concat", {column(parts.real), column(parts.imaginary)},
      [&] {
        std::vector<ir::NamedAttribute> attributes;
        attributes.emplace_back("axis", std::int64_t{-1});
        return attributes;
      }(),
      site.output_type()));
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

void separate_abs(ComplexSite& site) {
  site.give_real(site.emit("sqrt.default", {squared_size(site, site.parts(0))}, site.output_type()));
}

void separate_angle(ComplexSite& site) {
  const Parts parts = site.parts(0);
  site.give_real(site.emit("atan2.default", {parts.imaginary, parts.real}, site.output_type()));
}

/// From real to complex, from complex to real (which drops the imaginary part),
/// or between complex dtypes.
void separate_cast(ComplexSite& site) {
  const auto cast = [&](Value* part) {
    return site
        .again({part},
               [&] {
                 std::vector<Argument> arguments;
                 for (const Argument& argument : site.node().arguments())
                   arguments.push_back(argument_of_part(argument, Part::kReal));
                 return arguments;
               }())
        .front();
  };
  const bool gives_complex = is_complex(site.node().output().dtype());
  if (!gives_complex) return site.give_real(cast(site.parts(0).real));
  if (site.is_complex(0)) return site.give({cast(site.parts(0).real), cast(site.parts(0).imaginary)});
  Value* real = cast(&site.value(0));
  site.give({real, site.zeros_like(*real)});
}

// ------------------------------------------------------------------------------------------------
// products

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

/// 1 / z = conj(z) / |z|^2
Parts inverted(ComplexSite& site, const Parts& parts) {
  const ir::Type& type = parts.real->type();
  Value* size = squared_size(site, parts);
  Value* negative = site.emit("neg.default", {parts.imaginary}, type);
  return {site.emit("div.Tensor", {parts.real, size}, type), site.emit("div.Tensor", {negative, size}, type)};
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

/// exp(a + bi) = exp(a) (cos b + i sin b)
void separate_exp(ComplexSite& site) {
  const Parts parts = site.parts(0);
  const ir::Type type = site.output_type();
  Value* size = site.emit("exp.default", {parts.real}, type);
  const auto part = [&](std::string_view function) {
    return product(site, size, site.emit(function, {parts.imaginary}, type), type);
  };
  site.give({part("cos.default"), part("sin.default")});
}

/// A check of what the conversion knows leaves nothing behind.
void separate_assertion(ComplexSite&) {}

// ------------------------------------------------------------------------------------------------
// which rule

struct Row {
  ComplexRule rule;
  std::vector<std::string_view> targets;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
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
        "aten.fft_fftshift.default",
        "aten.fft_ifftshift.default",
        "aten.ravel.default",
        "aten.trace.default",
        "aten.resolve_neg.default",
        "aten.numpy_T.default",
        "aten.mT.default"}},
      {separate_sum,
       {"aten.add.Tensor", "aten.sub.Tensor", "aten.cat.default", "aten.stack.default", "aten.where.self"}},
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
      {separate_fft_c2c, {"aten._fft_c2c.default"}},
      {separate_fft_r2c, {"aten._fft_r2c.default"}},
      {separate_fft_c2r, {"aten._fft_c2r.default"}},
  };
  return table;
}

}  // namespace

ComplexRule find_complex_rule(std::string_view target) {
  for (const Row& row : rows()) {
    if (std::ranges::find(row.targets, target) != row.targets.end()) return row.rule;
  }
  return nullptr;
}

}  // namespace exportguard::lowering
