#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/guard/declaration.h"

namespace exportguard {

/// What a guard installs. Fill by name.
struct PatchOptions {
  bool patch = true;               ///< false: none but the serializers
  bool serializers = true;         ///< how caches and other classes are flattened for torch.export
  bool patch_sympy = true;         ///< mends the symbols that torch.export makes of sizes
  bool patch_torch = true;         ///< mends torch.export and the shapes it infers
  bool patch_transformers = true;  ///< mends the code of transformers' models
  bool patch_diffusers = false;    ///< mends the code of diffusers' models
  bool catch_constraints = true;   ///< a dynamic axis that became static is reported, not an error at the end
  int stop_if_static = 0;          ///< 1: an error at the place where a dynamic axis becomes static
  std::string dump_rewriting;      ///< a folder for the rewritten sources; empty: none
  std::vector<guard::PatchDeclaration> custom_patches;  ///< installed after all others; one that shares a target with a
                                                        ///< known patch takes its place
  std::vector<guard::PatchDeclaration> rewrite;         ///< functions rewritten for this guard alone
};

namespace guard {

/// A kind of patches: its name, and the option that switches it.
struct Kind {
  PatchKind kind;
  std::string_view name;
  std::string_view option;         ///< empty where it is the patches that say whether there are any
  bool PatchOptions::* is_wanted;  ///< null where it is no flag
};

/// Every kind, in the order of `PatchKind`.
std::span<const Kind> kinds() noexcept;

/// Whether `options` ask for patches of this kind. For one that they do not ask for, `switched_off_by` says why.
bool asks_for(const PatchOptions& options, PatchKind kind) noexcept;
/// "patch=False", "patch_torch=False", …
std::string switched_off_by(const PatchOptions& options, PatchKind kind);

}  // namespace guard
}  // namespace exportguard
