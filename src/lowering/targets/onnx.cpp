#include "lowering/target_facts.h"

namespace exportguard::lowering {

const TargetFacts& onnx_facts() {
  static constexpr TargetFacts kFacts = {.name = "onnx", .runs_all = true};
  return kFacts;
}

}  // namespace exportguard::lowering
