#include "lowering/fused_attention.h"

#include <string_view>

#include "exportguard/lowering/fused_attention.h"

namespace exportguard::lowering {
namespace {

constexpr std::string_view kAttention = "aten.scaled_dot_product_attention.default";

}  // namespace

const LoweringTable& table_with_fused_attention() {
  static const LoweringTable table = [] {
    LoweringTable fused = LoweringTable::builtin();
    fused.replace(kAttention, lower_attention_as_one);
    return fused;
  }();
  return table;
}

}  // namespace exportguard::lowering
