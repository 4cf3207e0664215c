#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exportguard/common/errors.h"

namespace exportguard {

/// An integer expression over named symbols: a dimension (`batch`, `past + seq`) or any SymInt.
///
/// Always in canonical form (a sum of products of atoms, sorted; an atom is a symbol or a call such
/// as `FloorDiv(a, b)`), so that `==` compares meaning as far as the simplifications reach:
/// `a + b == b + a`, `2*(a + 1) - a == a + 2`, `FloorDiv(4*a, 2) == 2*a`, `Mod(4*a, 2) == 0`,
/// `Max(a, a) == a`. Immutable and cheap to copy; a constant allocates nothing.
class SymExpr {
 public:
  SymExpr() = default;                                               ///< 0
  SymExpr(std::int64_t value);                                       // NOLINT: a number is an expression
  SymExpr(int value) : SymExpr(static_cast<std::int64_t>(value)) {}  // NOLINT

  static SymExpr symbol(std::string_view name);

  /// A function of expressions, folded where its arguments allow: `FloorDiv`, `CeilDiv`, `Mod`, `Max`, `Min`,
  /// `Pow`; a function of another name stays as it is.
  static SymExpr call(std::string_view function, std::vector<SymExpr> arguments);

  /// Reads what `str` prints and what sympy prints for torch's expressions (`s0 + 1`, `((s0//2))`,
  /// `Mod(s0, 4)`, `s0**2`, `Max(1, s0)`). @throws ParseError.
  static SymExpr parse(std::string_view text);

  bool is_constant() const noexcept { return node_ == nullptr; }
  /// The value of a constant; nothing for any other expression.
  std::optional<std::int64_t> constant() const noexcept;
  /// The name of a single symbol; nothing for any other expression.
  std::optional<std::string> symbol_name() const;

  /// Every symbol in it, sorted, each once.
  std::vector<std::string> symbols() const;

  SymExpr substitute(const std::map<std::string, SymExpr>& values) const;

  /// The value for the given symbols; nothing if one is missing, a divisor is zero, or a function is unknown.
  std::optional<std::int64_t> evaluate(const std::map<std::string, std::int64_t>& values) const;

  std::string str() const;
  std::size_t hash() const noexcept;

  /// One summand: `coefficient * factor_1 * … * factor_n`; no factors for the constant summand.
  /// A factor is a symbol or a call, repeated for a power.
  struct Term;
  /// The summands in printing order; empty for 0. Used to compute an expression from tensors.
  std::vector<Term> terms() const;
  /// The function's name and arguments, if the whole expression is one call.
  std::optional<std::pair<std::string, std::vector<SymExpr>>> as_call() const;

  friend SymExpr operator+(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator-(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator*(const SymExpr& a, const SymExpr& b);
  friend bool operator==(const SymExpr& a, const SymExpr& b);
  friend bool operator<(const SymExpr& a, const SymExpr& b);  ///< some total order, for sorting

  struct Node;  ///< private to symbolic.cpp

 private:
  std::int64_t value_ = 0;
  std::shared_ptr<const Node> node_;  ///< null for a constant
};

struct SymExpr::Term {
  std::int64_t coefficient;
  std::vector<SymExpr> factors;
};

SymExpr floor_div(const SymExpr& a, const SymExpr& b);
SymExpr mod(const SymExpr& a, const SymExpr& b);  ///< Python's: the sign of the divisor
SymExpr max(const SymExpr& a, const SymExpr& b);
SymExpr min(const SymExpr& a, const SymExpr& b);

/// The `std::optional` that a function returns; nothing where 64 bits do not hold a number that it computes, which a
/// tensor wraps.
template <typename Compute>
auto unless_overflow(const Compute& compute) -> decltype(compute()) {
  try {
    return compute();
  } catch (const Overflow&) {
    return std::nullopt;
  }
}

}  // namespace exportguard

template <>
struct std::hash<exportguard::SymExpr> {
  std::size_t operator()(const exportguard::SymExpr& e) const noexcept { return e.hash(); }
};
