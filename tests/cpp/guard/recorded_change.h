#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "exportguard/guard/declaration.h"

namespace exportguard::guard {

/// The world that the changes of these tests change: a log of what was done.
using Log = std::vector<std::string>;

/// Writes "+name" and "-name"; fails where its name says so.
class RecordedChange final : public Change {
 public:
  RecordedChange(Log& log, std::string name) : log_(log), name_(std::move(name)) {}

  void apply() override {
    if (name_ == "fails to apply") throw std::runtime_error("no such attribute");
    log_.push_back("+" + name_);
  }
  void undo() override {
    if (name_ == "fails to undo") throw std::runtime_error("it is gone");
    log_.push_back("-" + name_);
  }
  std::string target() const override { return name_; }

 private:
  Log& log_;
  std::string name_;
};

inline std::unique_ptr<Change> recorded(Log& log, std::string name) {
  return std::make_unique<RecordedChange>(log, std::move(name));
}

/// A patch of one change whose name and target are `name`.
inline PatchDeclaration patch(Log& log, const std::string& name, PatchKind kind = PatchKind::kTorch) {
  PatchDeclaration declaration;
  declaration.name = name;
  declaration.kind = kind;
  declaration.targets = {"module." + name};
  declaration.reason = "the test needs it";
  declaration.install = [&log, name](PatchStack& stack) { stack.apply(recorded(log, name)); };
  return declaration;
}

}  // namespace exportguard::guard
