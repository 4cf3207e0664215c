#pragma once

#include <cstdint>
#include <string_view>

#include "exportguard/guard/options.h"
#include "exportguard/guard/registry.h"
#include "exportguard/guard/report.h"

namespace exportguard {

/// Installs the patches that torch.export needs for as long as it lives, and puts everything back when it ends.
///
///     exportguard::python::Interpreter python;
///     exportguard::ExportPatches guard;
///     // … call torch.export.export …
///
/// The patches that a Python process declares are in the registry once `exportguard::python::Interpreter` exists.
/// Guards nest; a patch that an outer guard installed is left to it. One thread at a time may have guards open.
class ExportPatches {
 public:
  /// Installs, in the order of declaration, what `options` ask for and a probe finds needed and fitting. If one of them
  /// fails, what was installed is undone before the exception leaves.
  /// @throws GuardError if another thread has a guard open, if no patch is declared at all, or if a patch fails.
  explicit ExportPatches(const PatchOptions& options = {},
                         const guard::Registry& registry = guard::Registry::process());
  ExportPatches(const ExportPatches&) = delete;
  ExportPatches& operator=(const ExportPatches&) = delete;
  /// Restores, last change first, also while an exception is in flight and from any thread. Never throws.
  ~ExportPatches() noexcept;

  const guard::Report& report() const noexcept { return report_; }

  /// Restores now; a second call does nothing.
  /// @throws GuardError from another thread than the one that opened the guard, which then stays open; or listing what
  /// could not be restored, in which case everything else was.
  void close();

  bool is_open() const noexcept { return frame_ != 0; }

 private:
  void install_all(const PatchOptions& options, const guard::Registry& registry);
  bool install_if_needed(const guard::PatchDeclaration& declaration);
  void consider(const guard::PatchDeclaration& declaration, const PatchOptions& options);
  void restore() noexcept;

  std::uint64_t frame_ = 0;  ///< 0 once it has ended
  guard::Report report_;
};

}  // namespace exportguard
