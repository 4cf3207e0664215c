#include "exportguard/guard/export_patches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <utility>

#include "exportguard/common/errors.h"
#include "exportguard/guard/session.h"

namespace exportguard {

using guard::Fit;
using guard::Outcome;
using guard::PatchDeclaration;
using guard::Registry;
using guard::ReportLine;
using guard::Session;

namespace {

ReportLine line_for(const PatchDeclaration& declaration, Outcome outcome, std::string reason) {
  return {declaration.name, declaration.kind, declaration.targets, outcome, std::move(reason)};
}

void require_custom_distinct(const std::vector<PatchDeclaration>& customs) {
  for (std::size_t i = 0; i < customs.size(); ++i) {
    require_complete(customs[i]);
    for (std::size_t j = 0; j < i; ++j) require_distinct(customs[j], customs[i]);
  }
}

const PatchDeclaration* replaced_by(const PatchDeclaration& declaration, const PatchOptions& options) {
  if (!asks_for(options, guard::PatchKind::kCustom)) return nullptr;
  for (const PatchDeclaration& custom : options.custom_patches)
    if (same_target(declaration, custom)) return &custom;
  return nullptr;
}

std::string reason_for(const PatchDeclaration& declaration, const guard::Verdict& verdict) {
  return verdict.reason.empty() ? declaration.reason : verdict.reason;
}

std::string skipped_reason(const guard::Verdict& verdict) {
  if (verdict.reason.empty()) return std::string(name_of(verdict.fit));
  return fmt::format("{}: {}", name_of(verdict.fit), verdict.reason);
}

}  // namespace

ExportPatches::ExportPatches(const PatchOptions& options, const Registry& registry) {
  require_custom_distinct(options.custom_patches);
  require_custom_distinct(options.rewrite);
  frame_ = Session::process().open(&report_);
  try {
    install_all(options, registry);
  } catch (...) {
    restore();  // a constructor that throws gets no destructor
    throw;
  }
}

ExportPatches::~ExportPatches() noexcept {
  if (frame_ == 0) return;
  restore();
  // The report ends with the guard and nothing may be thrown here, so this is the last chance to say it.
  for (const std::string& failure : report_.restore_failures)
    std::fprintf(stderr, "exportguard: not restored: %s\n", failure.c_str());
}

void ExportPatches::install_all(const PatchOptions& options, const Registry& registry) {
  const std::vector<Registry::Entry> entries = registry.entries();
  if (entries.empty() && options.custom_patches.empty() && options.rewrite.empty())
    throw GuardError("no patch is declared: start exportguard::python::Interpreter before the guard");
  for (const Registry::Entry& entry : entries) consider(*entry, options);
  for (const PatchDeclaration& rewrite : options.rewrite) consider(rewrite, options);
  for (const PatchDeclaration& custom : options.custom_patches) consider(custom, options);
}

void ExportPatches::consider(const PatchDeclaration& declaration, const PatchOptions& options) {
  const auto skip = [&](Outcome outcome, std::string reason) {
    report_.lines.push_back(line_for(declaration, outcome, std::move(reason)));
  };
  if (!asks_for(options, declaration.kind)) return skip(Outcome::kSkipped, switched_off_by(options, declaration.kind));
  const PatchDeclaration* custom = replaced_by(declaration, options);
  if (custom && custom != &declaration)
    return skip(Outcome::kSkipped, fmt::format("replaced by the custom patch '{}'", custom->name));
  if (Session::process().is_installed(declaration.name))
    return skip(Outcome::kAlreadyInstalled, "by a guard around this one");
  if (install_if_needed(declaration) && declaration.dump && !options.dump_rewriting.empty())
    declaration.dump(options.dump_rewriting);
}

bool ExportPatches::install_if_needed(const PatchDeclaration& declaration) {
  const guard::Verdict verdict = declaration.probe ? declaration.probe() : guard::Verdict{};
  if (verdict.fit != Fit::kNeeded) {
    report_.lines.push_back(line_for(declaration, Outcome::kSkipped, skipped_reason(verdict)));
    return false;
  }
  Session& session = Session::process();
  report_.lines.push_back(line_for(declaration, Outcome::kInstalled, reason_for(declaration, verdict)));
  session.note_installed(declaration.name, frame_);
  declaration.install(session.stack());
  if (declaration.told) report_.amend(declaration.name, declaration.told());
  return true;
}

void ExportPatches::restore() noexcept {
  if (frame_ == 0) return;
  report_.restore_failures = Session::process().close(std::exchange(frame_, 0));
}

void ExportPatches::close() {
  if (frame_ == 0) return;
  Session::process().require_owner("close the guard");
  restore();
  if (report_.restore_failures.empty()) return;
  throw GuardError(fmt::format("{} of the guard's changes could not be restored: {}", report_.restore_failures.size(),
                               fmt::join(report_.restore_failures, "; ")));
}

}  // namespace exportguard
