#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace exportguard::lowering {

class ComplexSite;
class LoweringContext;

/// Turns one torch-level node into ONNX nodes: reads it through the context and ends with `ctx.result(...)`.
using Lowering = std::function<void(LoweringContext&)>;

/// Rewrites one torch-level node that a complex tensor goes into or comes out of as nodes on real tensors, before
/// anything is lowered; see `lowering/complex_parts.h`.
using ComplexRule = void (*)(ComplexSite&);

/// Which lowering belongs to which operator, by its torch name: `aten.relu.default`, `operator.add`,
/// `higher_order.cond`.
class LoweringTable {
 public:
  /// @throws InvalidArgument if the operator has a row already.
  void add(std::string_view target, Lowering lowering);
  /// One lowering for several operators.
  void add(std::initializer_list<std::string_view> targets, const Lowering& lowering);
  /// Instead of the row that there is, if any.
  void replace(std::string_view target, Lowering lowering);

  /// What to do with operators where a complex tensor goes in or comes out.
  /// @throws InvalidArgument if one has such a rule already.
  void add_complex(std::initializer_list<std::string_view> targets, ComplexRule rule);

  const Lowering* find(std::string_view target) const;  ///< null without a row
  bool contains(std::string_view target) const { return find(target) != nullptr; }
  ComplexRule find_complex(std::string_view target) const;  ///< null without a rule
  std::vector<std::string> targets() const;                 ///< sorted

  /// The table with every unit of `src/lowering/aten`; built once.
  static const LoweringTable& builtin();

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, Lowering, Hash, std::equal_to<>> rows_;
  std::unordered_map<std::string, ComplexRule, Hash, std::equal_to<>> complex_rules_;
};

}  // namespace exportguard::lowering
