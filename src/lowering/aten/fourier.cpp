#include <cmath>
#include <string>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/complex_rules.h"
#include "lowering/fourier.h"
#include "lowering/size_arithmetic.h"

/// `torch.fft`, along any axes of any lengths. The rows are those of the domain "complex": see
/// `ComplexSite::leave_to_row`.
namespace exportguard::lowering {
namespace {

/// One of `torch.fft`'s functions, whose names say three things: fft, ifft2, hfftn, …
struct Plan {
  enum class Kind { kComplexToComplex, kRealToComplex, kComplexToReal };
  Kind kind = Kind::kComplexToComplex;
  bool is_inverse = false;
  char axes = '1';  ///< '1' for one axis, '2' for two, 'n' for any
};

/// @param name behind `fft_`
Plan plan_of(std::string_view name) {
  Plan plan;
  const bool is_hermitian = name.find("hf") != std::string_view::npos;
  plan.is_inverse = name.starts_with('i');
  const bool is_real = name.find("rf") != std::string_view::npos;
  if (is_real || is_hermitian)
    plan.kind = plan.is_inverse == is_real ? Plan::Kind::kComplexToReal : Plan::Kind::kRealToComplex;
  const std::string_view behind = name.substr(name.rfind("fft") + 3);
  if (!behind.empty() && behind.front() != '.') plan.axes = behind.front();
  return plan;
}

/// The transformed axes, and how many samples each shall have; none: as many as there are.
struct Lengths {
  std::vector<std::int64_t> axes;
  std::vector<std::optional<Size>> samples;
};

std::int64_t from_front(std::int64_t axis, std::size_t rank) {
  return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
}

std::vector<std::int64_t> axes_of(LoweringContext& ctx, const Plan& plan, std::size_t given, std::size_t rank) {
  constexpr std::size_t kAxes = 2;
  if (ctx.has(kAxes)) return ctx.integers(kAxes);
  if (plan.axes == '1') return {-1};
  const std::size_t count = plan.axes == '2' ? 2 : given == 0 ? rank : given;
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < count; ++i)
    axes.push_back(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(count));
  return axes;
}

/// fft_*(self, n or s, dim, norm); a length of -1 stands for none.
Lengths lengths_of(LoweringContext& ctx, const Plan& plan, std::size_t rank) {
  std::vector<Size> given;
  if (ctx.has(1)) given = plan.axes == '1' ? std::vector<Size>{Size(ctx.dim(1))} : ctx.sizes(1);
  if (plan.axes == '1' && ctx.has(1)) {
    if (const auto number = ctx.find_integer(1)) given.front() = Size(*number);
  }
  Lengths lengths;
  for (const std::int64_t axis : axes_of(ctx, plan, given.size(), rank)) lengths.axes.push_back(from_front(axis, rank));
  lengths.samples.resize(lengths.axes.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].number() != -1) lengths.samples.at(i) = given[i];
  }
  return lengths;
}

Normalization normalization_of(LoweringContext& ctx, bool is_inverse) {
  constexpr std::size_t kNorm = 3;
  const std::string_view norm = ctx.has(kNorm) ? ctx.text(kNorm) : "backward";
  if (norm == "ortho") return Normalization::kByRoot;
  return (norm == "backward") == is_inverse ? Normalization::kByCount : Normalization::kNone;
}

Transform transform_of(const Plan& plan, Normalization normalization) {
  return {plan.is_inverse ? Transform::Direction::kInverse : Transform::Direction::kForward, normalization};
}

void lower_transform(LoweringContext& ctx) {
  const Plan plan = plan_of(std::string_view(ctx.node().op()).substr(4));
  Value* x = signal_of(ctx, 0);
  const Lengths lengths = lengths_of(ctx, plan, ctx.rank(x) - 1);
  const bool gives_real = plan.kind == Plan::Kind::kComplexToReal;
  for (std::size_t i = 0; i + (gives_real ? 1 : 0) < lengths.axes.size(); ++i) {
    if (lengths.samples[i]) x = with_samples(ctx, x, lengths.axes[i], *lengths.samples[i]);
  }
  const Transform transform = transform_of(plan, normalization_of(ctx, plan.is_inverse));
  if (gives_real) {
    const std::optional<Size>& samples = lengths.samples.back();
    const Size bins = size_of(ctx, x, lengths.axes.back());
    const Size count = samples ? *samples : multiply(ctx, 2, subtract(ctx, bins, 1));
    return ctx.result(real_part(ctx, to_real(ctx, transform, x, lengths.axes, count)));
  }
  const bool is_half = plan.kind == Plan::Kind::kRealToComplex;
  give_parts(ctx,
             is_half ? half_to_complex(ctx, transform, x, lengths.axes) : to_complex(ctx, transform, x, lengths.axes));
}

// ------------------------------------------------------------------------------------------------ what torch
// decomposes to

std::vector<std::int64_t> listed_axes(LoweringContext& ctx, const Value* x) {
  std::vector<std::int64_t> axes = ctx.integers(1);
  for (std::int64_t& axis : axes) axis = from_front(axis, ctx.rank(x) - 1);
  return axes;
}

/// aten's operators say how to scale in argument 2; torch's primitive ones do not scale.
bool says_normalization(LoweringContext& ctx) { return ctx.node().op().starts_with('_'); }

Normalization listed_normalization(LoweringContext& ctx) {
  return says_normalization(ctx) ? static_cast<Normalization>(ctx.integer(2)) : Normalization::kNone;
}

std::size_t last_argument(LoweringContext& ctx) { return says_normalization(ctx) ? 3 : 2; }

void lower_c2c(LoweringContext& ctx) {
  Value* x = signal_of(ctx, 0);
  const auto direction = ctx.flag(last_argument(ctx)) ? Transform::Direction::kForward : Transform::Direction::kInverse;
  give_parts(ctx, to_complex(ctx, {direction, listed_normalization(ctx)}, x, listed_axes(ctx, x)));
}

void lower_r2c(LoweringContext& ctx) {
  Value* x = signal_of(ctx, 0);
  const Transform transform = {Transform::Direction::kForward, listed_normalization(ctx)};
  const bool is_half = ctx.flag(last_argument(ctx));
  give_parts(ctx, is_half ? half_to_complex(ctx, transform, x, listed_axes(ctx, x))
                          : to_complex(ctx, transform, x, listed_axes(ctx, x)));
}

void lower_c2r(LoweringContext& ctx) {
  Value* x = signal_of(ctx, 0);
  const std::size_t i = last_argument(ctx);
  const auto number = ctx.find_integer(i);
  const Size count = number ? Size(*number) : Size(ctx.dim(i));
  const Transform transform = {Transform::Direction::kInverse, listed_normalization(ctx)};
  ctx.result(real_part(ctx, to_real(ctx, transform, x, listed_axes(ctx, x), count)));
}

}  // namespace

void populate_fourier(LoweringTable& table) {
  for (const char* function : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
    for (const char* axes : {"", "2", "n"}) {
      const std::string name = std::string("fft_") + function + axes + ".default";
      table.add("complex." + name, lower_transform);
      table.add_complex({"aten." + name}, separate_in_row);
      const bool gives_real = plan_of(std::string_view(name).substr(4)).kind == Plan::Kind::kComplexToReal;
      if (gives_real) table.add("aten." + name, lower_transform);  // of what has no imaginary part
    }
  }
  table.add({"complex._fft_c2c.default", "complex.fft_c2c.default"}, lower_c2c);
  table.add({"complex._fft_r2c.default", "complex.fft_r2c.default"}, lower_r2c);
  table.add({"complex._fft_c2r.default", "complex.fft_c2r.default"}, lower_c2r);
  table.add_complex({"aten._fft_c2c.default", "aten._fft_r2c.default", "aten._fft_c2r.default", "prims.fft_c2c.default",
                     "prims.fft_r2c.default", "prims.fft_c2r.default"},
                    separate_in_row);
}

}  // namespace exportguard::lowering
