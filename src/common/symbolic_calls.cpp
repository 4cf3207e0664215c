// The rules that fold calls: each function takes canonical arguments and returns a canonical expression.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "common/symbolic_node.h"
#include "exportguard/common/errors.h"

namespace exportguard {
namespace {

using Node = SymExpr::Node;

constexpr std::int64_t kLargestPower = 64;  // an exponent beyond it stays a call rather than a long product

SymExpr unfolded(std::string_view function, std::vector<SymExpr> arguments) {
  return Node::atom({std::string(function), std::move(arguments), true});
}

// Division that rounds down; the smallest integer by -1 is the one quotient that does not fit.
std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == -1) return checked_multiply(a, -1);
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
  if (b == -1) return 0;
  const std::int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

SymExpr negate(const SymExpr& e) { return SymExpr(0) - e; }

// What is left of `whole` without the factors of `part`; nothing if one is missing.
std::optional<Monomial> divide_factors(const Monomial& whole, const Monomial& part) {
  Monomial rest = whole;
  for (const AtomPtr& factor : part) {
    const auto found =
        std::find_if(rest.begin(), rest.end(), [&](const AtomPtr& f) { return compare(*f, *factor) == 0; });
    if (found == rest.end()) return std::nullopt;
    rest.erase(found);
  }
  return rest;
}

struct Division {
  SymExpr quotient;
  SymExpr rest;
};

// a == quotient * b + rest, where the quotient takes every summand that `b`, a single summand, divides.
Division divide_terms(const SymExpr& a, const MonomialTerm& b) {
  Division result{0, Node::constant_of(a)};
  for (const MonomialTerm& term : Node::terms_of(a)) {
    const auto factors = divide_factors(term.factors, b.factors);
    if (!factors || floor_remainder(term.coefficient, b.coefficient) != 0) {
      result.rest = result.rest + Node::make({term}, 0);
      continue;
    }
    const std::int64_t ratio = floor_quotient(term.coefficient, b.coefficient);
    result.quotient = result.quotient + (factors->empty() ? SymExpr(ratio) : Node::make({{*factors, ratio}}, 0));
  }
  return result;
}

// The number k with a == k * b, if there is one. Neither is a constant.
std::optional<std::int64_t> constant_ratio(const SymExpr& a, const SymExpr& b) {
  const MonomialTerm& left = Node::terms_of(a).front();
  const MonomialTerm& right = Node::terms_of(b).front();
  if (floor_remainder(left.coefficient, right.coefficient) != 0) return std::nullopt;
  const std::int64_t ratio = floor_quotient(left.coefficient, right.coefficient);
  return a == b * ratio ? std::optional(ratio) : std::nullopt;
}

Division divide_by_expression(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant()) return {0, a};
  if (const auto ratio = constant_ratio(a, b)) return {*ratio, 0};
  const bool is_single_term = Node::constant_of(b) == 0 && Node::terms_of(b).size() == 1;
  return is_single_term ? divide_terms(a, Node::terms_of(b).front()) : Division{0, a};
}

// For b > 1. The constant of the rest lies in [0, b).
Division divide_by_constant(const SymExpr& a, std::int64_t b) {
  Division result = divide_terms(a, {{}, b});
  const std::int64_t constant = Node::constant_of(a);
  result.quotient = result.quotient + floor_quotient(constant, b);
  result.rest = result.rest - constant + floor_remainder(constant, b);
  return result;
}

std::int64_t common_divisor(const SymExpr& a, std::int64_t b) {
  for (const MonomialTerm& term : Node::terms_of(a)) b = std::gcd(b, term.coefficient);
  return b;
}

// a without its constant, every coefficient divided by `divisor`, which divides all of them.
SymExpr divide_coefficients(const SymExpr& a, std::int64_t divisor) {
  std::vector<MonomialTerm> terms = Node::terms_of(a);
  for (MonomialTerm& term : terms) term.coefficient /= divisor;
  return Node::make(std::move(terms), 0);
}

bool is_negative_throughout(const SymExpr& a) {
  const auto& terms = Node::terms_of(a);
  return std::all_of(terms.begin(), terms.end(), [](const MonomialTerm& term) { return term.coefficient < 0; });
}

// FloorDiv(FloorDiv(x, m), n) == FloorDiv(x, m * n) for positive m and n.
std::optional<SymExpr> merge_nested_division(const SymExpr& a, std::int64_t b) {
  const auto inner = a.as_call();
  if (!inner || inner->first != "FloorDiv") return std::nullopt;
  const auto divisor = inner->second[1].constant();
  if (!divisor || *divisor <= 0) return std::nullopt;
  return floor_div(inner->second[0], checked_multiply(*divisor, b));
}

// The floor of a/b for b > 1, where no summand of `a` is divisible by b.
SymExpr floor_div_rest(const SymExpr& a, std::int64_t b) {
  if (a.is_constant()) return floor_quotient(*a.constant(), b);
  if (is_negative_throughout(a)) return negate(floor_div(negate(a) + (b - 1), b));
  const std::int64_t divisor = common_divisor(a, b);
  if (divisor > 1) {
    return floor_div(divide_coefficients(a, divisor) + floor_quotient(Node::constant_of(a), divisor), b / divisor);
  }
  if (const auto merged = merge_nested_division(a, b)) return *merged;
  return unfolded("FloorDiv", {a, b});
}

SymExpr fold_floor_div_by_constant(const SymExpr& a, std::int64_t b) {
  if (b == 0) return unfolded("FloorDiv", {a, b});
  if (b == 1) return a;
  if (b < 0) return floor_div(negate(a), checked_multiply(b, -1));
  const Division parts = divide_by_constant(a, b);
  return parts.quotient + floor_div_rest(parts.rest, b);
}

SymExpr fold_floor_div(const SymExpr& a, const SymExpr& b) {
  if (const auto divisor = b.constant()) return fold_floor_div_by_constant(a, *divisor);
  if (a == SymExpr(0)) return 0;
  const Division parts = divide_by_expression(a, b);
  if (parts.rest == SymExpr(0)) return parts.quotient;
  return parts.quotient + unfolded("FloorDiv", {parts.rest, b});
}

SymExpr fold_ceil_div(const SymExpr& a, const SymExpr& b) { return negate(fold_floor_div(negate(a), b)); }

bool is_remainder_of(const SymExpr& a, std::int64_t b) {
  const auto inner = a.as_call();
  return inner && inner->first == "Mod" && inner->second[1] == SymExpr(b);
}

// `a` with every coefficient brought between -b and b, the constant into [0, b).
SymExpr reduce_coefficients(const SymExpr& a, std::int64_t b) {
  std::vector<MonomialTerm> terms;
  for (MonomialTerm term : Node::terms_of(a)) {
    term.coefficient %= b;
    if (term.coefficient != 0) terms.push_back(std::move(term));
  }
  return Node::make(std::move(terms), floor_remainder(Node::constant_of(a), b));
}

SymExpr fold_mod_by_constant(const SymExpr& a, std::int64_t b) {
  if (b == 0) return unfolded("Mod", {a, b});
  if (b < 0) return negate(mod(negate(a), checked_multiply(b, -1)));
  const SymExpr reduced = reduce_coefficients(a, b);
  if (reduced.is_constant() || is_remainder_of(reduced, b)) return reduced;
  const std::int64_t divisor = common_divisor(reduced, b);
  if (divisor == 1) return unfolded("Mod", {reduced, b});
  // Mod(g*x + r, g*y) == g*Mod(x, y) + r for 0 <= r < g.
  const std::int64_t constant = Node::constant_of(reduced);
  const SymExpr inner = divide_coefficients(reduced, divisor) + constant / divisor;
  return mod(inner, b / divisor) * divisor + constant % divisor;
}

SymExpr fold_mod(const SymExpr& a, const SymExpr& b) {
  if (const auto divisor = b.constant()) return fold_mod_by_constant(a, *divisor);
  const SymExpr rest = divide_by_expression(a, b).rest;
  return rest == SymExpr(0) ? rest : unfolded("Mod", {rest, b});
}

SymExpr fold_pow(const SymExpr& base, const SymExpr& exponent) {
  const auto power = exponent.constant();
  if (!power || *power < 0 || *power > kLargestPower) return unfolded("Pow", {base, exponent});
  SymExpr result = 1;
  for (std::int64_t i = 0; i < *power; ++i) result = result * base;
  return result;
}

void flatten(std::string_view function, const std::vector<SymExpr>& arguments, std::vector<SymExpr>& into) {
  for (const SymExpr& argument : arguments) {
    const auto inner = argument.as_call();
    if (inner && inner->first == function) {
      flatten(function, inner->second, into);
    } else {
      into.push_back(argument);
    }
  }
}

// Adds `candidate` unless one that is there wins over it by a constant; drops those that it wins over.
void keep_extreme(std::vector<SymExpr>& kept, const SymExpr& candidate, bool is_max) {
  const auto loses = [&](const SymExpr& a, const SymExpr& b) {
    const auto difference = (a - b).constant();
    return difference && (is_max ? *difference <= 0 : *difference >= 0);
  };
  if (std::any_of(kept.begin(), kept.end(), [&](const SymExpr& other) { return loses(candidate, other); })) return;
  std::erase_if(kept, [&](const SymExpr& other) { return loses(other, candidate); });
  kept.push_back(candidate);
}

SymExpr fold_extreme(std::string_view function, const std::vector<SymExpr>& arguments) {
  std::vector<SymExpr> candidates;
  flatten(function, arguments, candidates);
  std::vector<SymExpr> kept;
  for (const SymExpr& candidate : candidates) keep_extreme(kept, candidate, function == "Max");
  if (kept.size() == 1) return kept.front();
  std::sort(kept.begin(), kept.end());
  return unfolded(function, std::move(kept));
}

using BinaryRule = SymExpr (*)(const SymExpr&, const SymExpr&);

struct Rule {
  std::string_view function;
  BinaryRule fold;
};

// CleanDiv and PythonMod are torch's names for the case without a rest and for negative operands.
constexpr std::array<Rule, 6> kBinaryRules{{
    {"FloorDiv", fold_floor_div},
    {"CleanDiv", fold_floor_div},
    {"CeilDiv", fold_ceil_div},
    {"Mod", fold_mod},
    {"PythonMod", fold_mod},
    {"Pow", fold_pow},
}};

void require_arity(std::string_view function, std::size_t expected, std::size_t actual) {
  if (expected == actual) return;
  throw InvalidArgument(fmt::format("{} takes {} arguments, got {}", function, expected, actual));
}

}  // namespace

SymExpr SymExpr::call(std::string_view function, std::vector<SymExpr> arguments) {
  if (function == "Max" || function == "Min") {
    if (arguments.empty()) throw InvalidArgument(fmt::format("{} takes at least one argument, got none", function));
    return fold_extreme(function, arguments);
  }
  for (const Rule& rule : kBinaryRules) {
    if (rule.function != function) continue;
    require_arity(function, 2, arguments.size());
    return rule.fold(arguments[0], arguments[1]);
  }
  if (function.empty()) throw InvalidArgument("a function in a symbolic expression needs a name, got an empty one");
  return unfolded(function, std::move(arguments));
}

SymExpr floor_div(const SymExpr& a, const SymExpr& b) { return fold_floor_div(a, b); }
SymExpr mod(const SymExpr& a, const SymExpr& b) { return fold_mod(a, b); }
SymExpr max(const SymExpr& a, const SymExpr& b) { return SymExpr::call("Max", {a, b}); }
SymExpr min(const SymExpr& a, const SymExpr& b) { return SymExpr::call("Min", {a, b}); }

}  // namespace exportguard
