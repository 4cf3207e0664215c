#pragma once

#include <map>
#include <string>

#include "exportguard/expansion/expansion.h"

namespace exportguard::expansion {

/// A call whose symbols are numbered in the order in which they occur, and the way back to the graph's.
class CanonicalCall {
 public:
  explicit CanonicalCall(const ir::Node& node);

  const Call& call() const { return call_; }
  const std::string& key() const { return key_; }  ///< equal for calls that one expansion serves

  bool knows(const std::string& symbol) const { return originals_.contains(symbol); }
  /// The graph's expression for a symbol of the expansion.
  void add(const std::string& symbol, SymExpr original) { originals_.emplace(symbol, std::move(original)); }
  SymExpr original(const SymExpr& expression) const { return expression.substitute(originals_); }

 private:
  SymExpr canonical(const SymExpr& expression);
  ir::Type canonical(const ir::Type& type);

  Call call_;
  std::string key_;
  std::map<std::string, SymExpr> canonicals_;  // the graph's symbol → `d0`
  std::map<std::string, SymExpr> originals_;   // and back
};

}  // namespace exportguard::expansion
