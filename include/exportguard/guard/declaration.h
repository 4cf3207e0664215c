#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/guard/patch_stack.h"

namespace exportguard::guard {

/// What a patch belongs to; each kind is switched by one field of `PatchOptions`.
enum class PatchKind {
  kSympy,         ///< patch_sympy: the symbols of sizes
  kTorch,         ///< patch_torch
  kTransformers,  ///< patch_transformers
  kDiffusers,     ///< patch_diffusers
  kSerializer,    ///< serializers: how a class is flattened and rebuilt
  kConstraints,   ///< catch_constraints
  kStaticCheck,   ///< stop_if_static
  kRewrite,       ///< rewrite
  kCustom,        ///< custom_patches
};

/// "torch", "transformers", …, "custom".
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

/// What a guard did with a patch.
enum class Outcome {
  kInstalled,
  kSkipped,
  kAlreadyInstalled,  ///< by a guard around this one
  kWaiting,           ///< for a module to be imported, or for one that has what it changes
};

/// "installed", "skipped", "already installed", "waiting".
std::string_view name_of(Outcome outcome) noexcept;
/// @throws InvalidArgument listing the known names.
Outcome outcome(std::string_view name);

/// What an install came to.
struct Told {
  Outcome outcome = Outcome::kInstalled;
  std::vector<std::string> targets;  ///< what was replaced; empty: the declared targets
  std::string reason;                ///< empty: that of the declaration
};

/// A declared fact: what is changed, why, where upstream knows of it, and how to find out whether it is still needed.
struct PatchDeclaration {
  std::string name;  ///< unique among all declarations
  PatchKind kind = PatchKind::kCustom;
  std::vector<std::string> targets;  ///< dotted paths; no two declarations of a registry share one
  std::string searches;  ///< where targets are looked for while it is installed; empty if `targets` has them all
  std::string reason;
  std::string upstream;  ///< a link, or empty
  std::string versions;  ///< "torch>=2.11,<2.13", or empty for any
  /// Looks at the installed versions and changes nothing. An empty function means: always needed.
  std::function<Verdict()> probe;
  /// Applies its changes to the stack. If it throws, the caller undoes those.
  std::function<void(PatchStack&)> install;
  /// What the last `install` came to. An empty function means: installed, on its targets.
  std::function<Told()> told;
  /// Writes the sources of what it changes to a folder, after `install`. May be empty.
  std::function<void(const std::string& folder)> dump;
};

}  // namespace exportguard::guard
