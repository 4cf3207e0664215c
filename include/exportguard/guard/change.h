#pragma once

#include <string>

namespace exportguard::guard {

/// One change of the world outside that can be taken back: an attribute, a registration, a setting.
/// Made with what it needs, then applied; undone after that, it may be applied again.
class Change {
 public:
  Change() = default;
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  /// Releases what the change holds without undoing it.
  virtual ~Change() = default;

  /// Makes the change. @throws anything; the world is then as it was before.
  virtual void apply() = 0;

  /// Puts back what `apply` found. @throws anything if that is not possible any more.
  virtual void undo() = 0;

  /// What is changed, for reports: "torch.nn.Linear.forward".
  virtual std::string target() const = 0;
};

}  // namespace exportguard::guard
