#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::operators {

/// What an operator does to memory, as its schema says.
enum class Effect {
  kNone,        ///< reads its arguments, returns new tensors
  kView,        ///< returns tensors that share the memory of an argument
  kMaybeView,   ///< a view or a copy, whichever torch can (`reshape`, `contiguous`, `to`)
  kWrite,       ///< writes into arguments
  kReshapeSelf  ///< changes the shape of its argument itself and writes no element (`unsqueeze_`, `t_`)
};

/// An operator without side effects that computes what another one writes.
struct Counterpart {
  std::string op;             ///< `add.Tensor`; the domain is that of the original
  std::size_t arguments = 0;  ///< how many it takes
  std::size_t results = 0;
};

struct OperatorFacts {
  Effect effect = Effect::kNone;
  std::size_t viewed = 0;                           ///< kView, kMaybeView: the argument whose memory is shared
  std::vector<std::size_t> written;                 ///< kWrite: the arguments it writes into
  std::vector<std::optional<std::size_t>> returns;  ///< kWrite: for each result the written argument that it is
  std::vector<std::size_t> dropped;                 ///< kWrite: `out=` arguments, which the counterpart does not take
  std::optional<Counterpart> functional;            ///< kWrite, kReshapeSelf; nothing: torch has none
};

/// Facts by operator, looked up in the dispatcher once for each. An operator without a schema has no effect.
class OperatorTable {
 public:
  const OperatorFacts& of(const ir::Node& node);

 private:
  std::unordered_map<std::string, OperatorFacts> facts_;
};

/// The same, looked up now.
OperatorFacts facts_of(const std::string& domain, const std::string& op);

}  // namespace exportguard::operators
