#include "validation/lockstep.h"

namespace exportguard::validation {

ReferenceRun::ReferenceRun(const ir::Model& reference, std::span<const evaluator::Value> inputs,
                           const std::string& device, const Values& wanted)
    : program_(reference, {.device = device,
                           .observer =
                               [this, &wanted](const ir::Value& value, const evaluator::Value& content) {
                                 if (wanted.contains(&value)) made_.insert_or_assign(&value, content);
                               },
                           .substitute = {}}),
      run_(program_, inputs) {}

std::optional<evaluator::Value> ReferenceRun::take(const ir::Value& value) {
  auto found = made_.find(&value);
  while (found == made_.end()) {
    if (!run_.advance()) return std::nullopt;
    found = made_.find(&value);
  }
  evaluator::Value content = std::move(found->second);
  made_.erase(found);
  return content;
}

}  // namespace exportguard::validation
