#include <numbers>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_arithmetic.h"
#include "lowering/kernels.h"

/// Operators for complex numbers on real ones. Complex tensors are taken apart before: see complex_parts.h.
namespace exportguard::lowering {
namespace {

void lower_same(LoweringContext& ctx) { ctx.result(ctx.input(0)); }

/// Pi below zero, 0 above; NaN stays.
void lower_angle(LoweringContext& ctx) {
  Value* x = ctx.cast(ctx.input(0), ctx.output_dtype());
  Value* zero = ctx.number_like(0, x);
  Value* is_negative = kernel_op(ctx, "Less", {x, zero});
  Value* angle = ctx.where(is_negative, ctx.number_like(std::numbers::pi, x), zero);
  Value* is_number = kernel_op(ctx, "Equal", {x, x});
  ctx.result(ctx.where(is_number, angle, x));
}

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

/// Each part as large as both are together; times one, which keeps the sign of a zero.
void separate_complex_of_parts(ComplexSite& site) {
  const ir::Type type = site.output_type();
  const auto beside = [&](std::size_t i, std::size_t other) {
    Value* ones = site.emit("ones_like.default", {&site.value(other)}, site.value(other).type());
    return site.emit("mul.Tensor", {&site.value(i), ones}, type);
  };
  site.give({beside(0, 1), beside(1, 0)});
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

void separate_angle(ComplexSite& site) { site.give_real(angle_of(site, site.parts(0))); }

}  // namespace

void populate_complex(LoweringTable& table) {
  table.add("aten.angle.default", lower_angle);
  table.add({"aten.real.default", "aten.conj.default", "aten.conj_physical.default", "aten._conj.default"}, lower_same);
  table.add_complex({"aten.view_as_complex.default"}, separate_view_as_complex);
  table.add_complex({"aten.view_as_real.default"}, separate_view_as_real);
  table.add_complex({"aten.complex.default"}, separate_complex_of_parts);
  table.add_complex({"aten.polar.default"}, separate_polar);
  table.add_complex({"aten.real.default"}, separate_real);
  table.add_complex({"aten.imag.default"}, separate_imag);
  table.add_complex(
      {"aten._conj.default", "aten.conj.default", "aten._conj_physical.default", "aten.conj_physical.default"},
      separate_conj);
  table.add_complex({"aten.angle.default"}, separate_angle);
}

}  // namespace exportguard::lowering
