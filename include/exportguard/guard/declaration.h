#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/guard/patch_stack.h"

namespace exportguard::guard {

/// What a patch belongs to; each kind is switched by one field of `PatchOptions`.
enum class PatchKind {
  kSympy,         ///< patch_sympy
  kTorch,         ///< patch_torch
  kTransformers,  ///< patch_transformers
  kDiffusers,     ///< patch_diffusers
  kSerializer,    ///< serializers: how a class is flattened and rebuilt
  kConstraints,   ///< catch_constraints
  kStaticCheck,   ///< stop_if_static
  kRewrite,       ///< rewrite
  kCustom,        ///< custom_patches
};

/// "sympy", "torch", …, "custom".
std::string_view name_of(PatchKind kind) noexcept;
/// @throws InvalidArgument listing the known names.
PatchKind patch_kind(std::string_view name);

/// What a probe found on the installed versions.
enum class Fit {
  kNeeded,         ///< the patch does something here, and fits
  kNotNeeded,      ///< the installed version is right without it
  kDoesNotFit,     ///< the target is there but is not what the patch was written for
  kTargetMissing,  ///< the target is not there
};

/// "needed", "not needed", "does not fit", "target missing".
std::string_view name_of(Fit fit) noexcept;
/// @throws InvalidArgument listing the known names.
Fit fit(std::string_view name);

struct Verdict {
  Fit fit = Fit::kNeeded;
  std::string reason;
};

/// A declared fact: what is changed, why, where upstream knows of it, and how to find out whether it is still needed.
struct PatchDeclaration {
  std::string name;  ///< unique among all declarations
  PatchKind kind = PatchKind::kCustom;
  std::vector<std::string> targets;  ///< dotted paths, at least one; no two declarations of a registry share one
  std::string reason;
  std::string upstream;  ///< a link, or empty
  std::string versions;  ///< "torch>=2.11,<2.13", or empty for any
  /// Looks at the installed versions and changes nothing. An empty function means: always needed.
  std::function<Verdict()> probe;
  /// Applies its changes to the stack. If it throws, the caller undoes those.
  std::function<void(PatchStack&)> install;
  /// Writes the sources of what it changes to a folder, after `install`. May be empty.
  std::function<void(const std::string& folder)> dump;
};

}  // namespace exportguard::guard
