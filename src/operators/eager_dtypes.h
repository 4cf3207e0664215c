#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "exportguard/ir/graph.h"

namespace exportguard::operators {

/// Which dtypes torch's kernels refuse that its shape functions let pass, asked of the kernels themselves.
///
/// A call is made with small tensors of ones, then of zeros, of the node's dtypes. If both stop, and one with float32
/// or int64 in place of some of the dtypes does not, then the dtypes are what stops it: sizes and numbers are equal in
/// both. What stops with any dtype tells nothing and is taken. Halves count as float32 where every float of the call is
/// of one dtype: what the CPU has no kernel of halves for runs on other devices. Calls are known by operator and
/// dtypes, and made once.
///
/// Numbers that an operator takes beside its tensors have to lie within a dtype (`masked_fill(mask, 300)` of int8, -1e9
/// of halves): where the call runs with small ones, it is made once more with those of the node.
class EagerDtypes {
 public:
  /// What torch says when it refuses the dtypes of the node's operands, in one line; nothing if it takes them.
  std::optional<std::string> refusal_of(const ir::Node& node);

 private:
  std::unordered_map<std::string, std::optional<std::string>> refusals_;
};

/// The dtypes of the tensors that a node reads, each once, as `i64 and f32`.
std::string operand_dtypes(const ir::Node& node);

}  // namespace exportguard::operators
