#include "exportguard/guard/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "exportguard/common/errors.h"

namespace exportguard::guard {
namespace {

constexpr std::array<Kind, 9> kKinds = {{
    {PatchKind::kSympy, "sympy", "patch_sympy", &PatchOptions::patch_sympy},
    {PatchKind::kTorch, "torch", "patch_torch", &PatchOptions::patch_torch},
    {PatchKind::kTransformers, "transformers", "patch_transformers", &PatchOptions::patch_transformers},
    {PatchKind::kDiffusers, "diffusers", "patch_diffusers", &PatchOptions::patch_diffusers},
    {PatchKind::kSerializer, "serializer", "serializers", &PatchOptions::serializers},
    {PatchKind::kConstraints, "constraints", "catch_constraints", &PatchOptions::catch_constraints},
    {PatchKind::kStaticCheck, "static_check", "stop_if_static", nullptr},
    {PatchKind::kRewrite, "rewrite", "", nullptr},
    {PatchKind::kCustom, "custom", "", nullptr},
}};

const Kind& row_of(PatchKind kind) noexcept { return kKinds[static_cast<std::size_t>(kind)]; }

bool own_switch(const PatchOptions& options, PatchKind kind) noexcept {
  const bool stops = options.stop_if_static > 0;
  if (kind == PatchKind::kStaticCheck) return stops;
  if (kind == PatchKind::kConstraints && stops) return false;  // who wants to stop wants no complaint logged
  const Kind& row = row_of(kind);
  return row.is_wanted == nullptr || options.*row.is_wanted;
}

}  // namespace

std::span<const Kind> kinds() noexcept { return kKinds; }

std::string_view name_of(PatchKind kind) noexcept { return row_of(kind).name; }

PatchKind patch_kind(std::string_view name) {
  const auto row = std::ranges::find(kKinds, name, &Kind::name);
  if (row != kKinds.end()) return row->kind;
  std::array<std::string_view, kKinds.size()> names;
  std::ranges::transform(kKinds, names.begin(), &Kind::name);
  throw InvalidArgument(fmt::format("patch kind must be one of {}, got '{}'", fmt::join(names, ", "), name));
}

bool asks_for(const PatchOptions& options, PatchKind kind) noexcept {
  return own_switch(options, kind) && (options.patch || kind == PatchKind::kSerializer);
}

std::string switched_off_by(const PatchOptions& options, PatchKind kind) {
  if (own_switch(options, kind)) return "patch=False";
  if (kind == PatchKind::kStaticCheck) return "stop_if_static=0";
  if (kind == PatchKind::kConstraints && options.catch_constraints) return "stop_if_static=1";
  return fmt::format("{}=False", row_of(kind).option);
}

}  // namespace exportguard::guard
