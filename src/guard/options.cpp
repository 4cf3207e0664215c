#include "exportguard/guard/options.h"

namespace exportguard::guard {
namespace {

bool own_switch(const PatchOptions& options, PatchKind kind) noexcept {
  switch (kind) {
    case PatchKind::kSympy:
      return options.patch_sympy;
    case PatchKind::kTorch:
      return options.patch_torch;
    case PatchKind::kTransformers:
      return options.patch_transformers;
    case PatchKind::kDiffusers:
      return options.patch_diffusers;
    case PatchKind::kSerializer:
      return options.serializers;
    case PatchKind::kConstraints:
      return options.catch_constraints && options.stop_if_static == 0;  // who wants to stop wants no complaint logged
    case PatchKind::kStaticCheck:
      return options.stop_if_static > 0;
    case PatchKind::kRewrite:
    case PatchKind::kCustom:
      return true;
  }
  return false;
}

}  // namespace

bool asks_for(const PatchOptions& options, PatchKind kind) noexcept {
  return own_switch(options, kind) && (options.patch || kind == PatchKind::kSerializer);
}

std::string switched_off_by(const PatchOptions& options, PatchKind kind) {
  if (own_switch(options, kind)) return "patch=False";
  switch (kind) {
    case PatchKind::kSerializer:
      return "serializers=False";
    case PatchKind::kConstraints:
      return options.catch_constraints ? "stop_if_static=1" : "catch_constraints=False";
    case PatchKind::kStaticCheck:
      return "stop_if_static=0";
    default:
      return "patch_" + std::string(name_of(kind)) + "=False";
  }
}

}  // namespace exportguard::guard
