#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::optimizer {

class Facts;
class Rewriter;

/// What the graph is made for.
enum class Target : std::uint8_t {
  kPortable,          ///< operators of the ONNX standard alone
  kOnnxRuntime,       ///< `com.microsoft` operators as well, and packed weights
  kOnnxRuntimeGenai,  ///< decoders whose caches onnxruntime-genai keeps in one buffer
};

/// "portable", "onnxruntime" or "onnxruntime-genai".
std::string_view name_of(Target target);

/// When a pattern is tried. Each stage also tries the patterns of the stages before it.
enum class Stage : std::uint8_t {
  kSimplify,  ///< fewer or cheaper nodes, the same operators
  kFuse,      ///< several nodes become one operator
  kFinish,    ///< what would hide a later fusion: weights get their final layout
  kPack,      ///< weights that have their layout are joined
};

/// The answer of a pattern: a refusal with its reason, or what is to be done. Nothing is changed until `rewrite` runs.
class Match {
 public:
  using Rewrite = std::function<void(Rewriter&)>;

  Match(Rewrite rewrite) : rewrite_(std::move(rewrite)) {}  // NOLINT: a rewrite is a match
  /// `reason` is a literal: it is kept by address.
  static Match no(const char* reason) {
    Match match;
    match.reason_ = reason;
    return match;
  }

  /// The same of a text that was made up.
  static Match no(std::string reason) {
    Match match;
    match.own_reason_ = std::move(reason);
    return match;
  }

  explicit operator bool() const { return rewrite_ != nullptr; }
  const char* reason() const { return reason_; }                 ///< null if it was made up
  const std::string& own_reason() const { return own_reason_; }  ///< empty if it is a literal
  void rewrite(Rewriter& rewriter) const { rewrite_(rewriter); }

 private:
  Match() = default;
  Rewrite rewrite_;
  const char* reason_ = nullptr;
  std::string own_reason_;
};

/// As a root of a pattern: every node of the ONNX domain and of the runtimes' own.
inline constexpr std::string_view kAnyRoot = "*";

/// One rule of the optimizer. `match` looks at one node of an operator in `roots` and what is around it, and changes
/// nothing.
struct Pattern {
  std::string name;
  std::string matches;  ///< what it looks for, for docs/optimizer.md
  std::string makes;    ///< what it puts there
  /// Operators, `com.microsoft::QuickGelu` of another domain than ONNX's, or `kAnyRoot`; kept by address.
  std::vector<std::string_view> roots;
  std::function<Match(const Facts& facts, ir::Node& node)> match;
  Stage stage = Stage::kSimplify;
  int opset = 18;  ///< the first that has the operators it makes
  Target target = Target::kPortable;
};

/// Which patterns there are, by the operator they look at.
class PatternTable {
 public:
  /// @throws InvalidArgument if the name is taken.
  void add(Pattern pattern);
  const std::vector<Pattern>& patterns() const { return patterns_; }
  const Pattern* find(std::string_view name) const;  ///< null if there is none of that name

  /// The table with every unit of `src/optimizer/patterns`; built once.
  static const PatternTable& builtin();

 private:
  std::vector<Pattern> patterns_;
};

}  // namespace exportguard::optimizer
