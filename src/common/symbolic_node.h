#pragma once

#include <compare>
#include <memory>
#include <string>
#include <vector>

#include "exportguard/common/symbolic.h"

namespace exportguard {

/// A symbol, or a call that no rule could fold.
struct SymAtom {
  std::string name;
  std::vector<SymExpr> arguments;
  bool is_call = false;
};

using AtomPtr = std::shared_ptr<const SymAtom>;
using Monomial = std::vector<AtomPtr>;  ///< sorted by `compare`; a power repeats its atom

struct MonomialTerm {
  Monomial factors;
  std::int64_t coefficient;
};

/// The summands of an expression apart from its constant: sorted by `compare`, no zero coefficient, never empty.
struct SymExpr::Node {
  std::vector<MonomialTerm> terms;
  std::size_t hash = 0;

  static SymExpr make(std::vector<MonomialTerm> terms, std::int64_t constant);
  static SymExpr atom(SymAtom atom);
  static const std::vector<MonomialTerm>& terms_of(const SymExpr& e);
  static std::int64_t constant_of(const SymExpr& e) { return e.value_; }
};

std::strong_ordering compare(const SymExpr& a, const SymExpr& b);
std::strong_ordering compare(const SymAtom& a, const SymAtom& b);
std::strong_ordering compare(const Monomial& a, const Monomial& b);  ///< higher degrees first

/// 64-bit arithmetic. @throws Overflow.
std::int64_t checked_add(std::int64_t a, std::int64_t b);
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);

}  // namespace exportguard
