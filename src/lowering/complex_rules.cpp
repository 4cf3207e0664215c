#include "lowering/complex_rules.h"

#include <algorithm>
#include <complex>
#include <string>

#include "lowering/complex_arithmetic.h"

namespace exportguard::lowering {
namespace {

using ir::Argument;

enum class Part { kReal, kImaginary };

Value* choose(const Parts& parts, Part part) { return part == Part::kReal ? parts.real : parts.imaginary; }

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
  // As large as a complex tensor, and no more than that: `expand_as`, `view_as`.
  if (!is_complex(site.node().output().dtype())) return site.give_real(real.front());
  const std::vector<Value*> imaginary = run_part(site, Part::kImaginary, others);
  for (std::size_t i = 0; i < real.size(); ++i) site.give({real[i], imaginary[i]}, i);
}

/// A real number that is zero where both parts are.
Value* whether_nonzero(ComplexSite& site, const Parts& z) {
  const ir::Type& type = z.real->type();
  return site.emit("add.Tensor",
                   {site.emit("abs.default", {z.real}, type), site.emit("abs.default", {z.imaginary}, type)}, type);
}

}  // namespace

void separate_each(ComplexSite& site) { separate_parts(site, RealOperands::kStay); }
void separate_sum(ComplexSite& site) { separate_parts(site, RealOperands::kAreZeroInImaginary); }

void separate_truth(ComplexSite& site) {
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < site.node().input_count(); ++i) {
    Value& operand = site.node().input(i);
    operands.push_back(is_complex(operand.dtype()) ? whether_nonzero(site, site.in_parts(operand)) : &operand);
  }
  site.give_real(site.again(operands, site.node().arguments()).front());
}

void separate_size(ComplexSite& site) { site.give_real(run_part(site, Part::kReal, RealOperands::kStay).front()); }

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

void separate_product(ComplexSite& site) {
  site.give(multiplied(site, site.node().op(), site.number(0), site.number(1)));
}

/// The margins of the imaginary part are zero where the number is real.
void separate_padding(ComplexSite& site) {
  const std::size_t place = site.node().op().starts_with("pad.") ? 3 : 2;
  std::vector<Argument> arguments = site.node().arguments();
  const auto* filler = site.has(place) ? site.argument(place).get_if<std::complex<double>>() : nullptr;
  const auto run = [&](Value* part, double of_complex) {
    if (filler != nullptr) arguments[place] = literal(of_complex);
    return site.again({part}, arguments).front();
  };
  const Parts z = site.parts(0);
  Value* real = run(z.real, filler ? filler->real() : 0);
  if (filler == nullptr && site.has(place)) arguments[place] = literal(0.0);
  site.give({real, run(z.imaginary, filler ? filler->imag() : 0)});
}

void separate_in_row(ComplexSite& site) { site.leave_to_row(); }

void separate_creation(ComplexSite& site) {
  Value* real = run_part(site, Part::kReal, RealOperands::kStay).front();
  const auto& arguments = site.node().arguments();
  const bool has_number = std::ranges::any_of(
      arguments, [](const Argument& argument) { return argument.get_if<std::complex<double>>() != nullptr; });
  site.give(
      {real, has_number ? run_part(site, Part::kImaginary, RealOperands::kStay).front() : site.zeros_like(*real)});
}

}  // namespace exportguard::lowering
