#include "exportguard/common/symbolic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "common/symbolic_node.h"
#include "exportguard/common/errors.h"

namespace exportguard {
namespace {

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_inner = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '.'; };
  return !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), is_inner);
}

std::size_t combine(std::size_t seed, std::size_t value) { return seed * 1099511628211U ^ value; }

std::size_t hash_atom(const SymAtom& atom) {
  std::size_t hash = std::hash<std::string>()(atom.name);
  for (const SymExpr& argument : atom.arguments) hash = combine(hash, argument.hash());
  return hash;
}

std::size_t hash_terms(const std::vector<MonomialTerm>& terms) {
  std::size_t hash = terms.size();
  for (const MonomialTerm& term : terms) {
    hash = combine(hash, static_cast<std::size_t>(term.coefficient));
    for (const AtomPtr& factor : term.factors) hash = combine(hash, hash_atom(*factor));
  }
  return hash;
}

// Both lists are sorted; so is the result.
std::vector<MonomialTerm> merge(const std::vector<MonomialTerm>& a, const std::vector<MonomialTerm>& b) {
  std::vector<MonomialTerm> sum;
  sum.reserve(a.size() + b.size());
  auto left = a.begin();
  auto right = b.begin();

  while (left != a.end() && right != b.end()) {
    const auto order = compare(left->factors, right->factors);
    if (order < 0) {
      sum.push_back(*left++);
    } else if (order > 0) {
      sum.push_back(*right++);
    } else {
      const std::int64_t coefficient = checked_add(left->coefficient, right->coefficient);
      if (coefficient != 0) sum.push_back({left->factors, coefficient});
      ++left;
      ++right;
    }
  }

  sum.insert(sum.end(), left, a.end());
  sum.insert(sum.end(), right, b.end());
  return sum;
}

SymExpr scale(const SymExpr& e, std::int64_t factor) {
  if (factor == 0) return 0;
  std::vector<MonomialTerm> terms = SymExpr::Node::terms_of(e);
  for (MonomialTerm& term : terms) term.coefficient = checked_multiply(term.coefficient, factor);
  return SymExpr::Node::make(std::move(terms), checked_multiply(SymExpr::Node::constant_of(e), factor));
}

// A program that has larger ones is not one of sizes: they would take all memory, and no number holds their values.
constexpr std::size_t kMostFactors = 64;
constexpr std::size_t kMostProducts = 4096;

Monomial product(const Monomial& a, const Monomial& b) {
  if (a.size() + b.size() > kMostFactors) throw Overflow("a product of sizes has too many factors");
  Monomial factors;
  factors.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(factors),
             [](const AtomPtr& x, const AtomPtr& y) { return compare(*x, *y) < 0; });
  return factors;
}

SymExpr multiply_term(const SymExpr& e, const MonomialTerm& term) {
  std::vector<MonomialTerm> terms;
  for (const MonomialTerm& other : SymExpr::Node::terms_of(e)) {
    terms.push_back({product(other.factors, term.factors), checked_multiply(other.coefficient, term.coefficient)});
  }
  const std::int64_t constant = SymExpr::Node::constant_of(e);
  if (constant != 0) terms.push_back({term.factors, checked_multiply(constant, term.coefficient)});
  std::sort(terms.begin(), terms.end(),
            [](const MonomialTerm& a, const MonomialTerm& b) { return compare(a.factors, b.factors) < 0; });
  return SymExpr::Node::make(std::move(terms), 0);
}

SymExpr from_atom(const AtomPtr& atom) { return SymExpr::Node::make({{{atom}, 1}}, 0); }

void collect_symbols(const SymExpr& e, std::set<std::string>& into) {
  for (const MonomialTerm& term : SymExpr::Node::terms_of(e)) {
    for (const AtomPtr& factor : term.factors) {
      if (!factor->is_call) into.insert(factor->name);
      for (const SymExpr& argument : factor->arguments) collect_symbols(argument, into);
    }
  }
}

SymExpr substitute_atom(const AtomPtr& atom, const std::map<std::string, SymExpr>& values) {
  if (atom->is_call) {
    std::vector<SymExpr> arguments;
    for (const SymExpr& argument : atom->arguments) arguments.push_back(argument.substitute(values));
    return SymExpr::call(atom->name, std::move(arguments));
  }
  const auto found = values.find(atom->name);
  return found == values.end() ? from_atom(atom) : found->second;
}

std::string print_atom(const SymAtom& atom) {
  if (!atom.is_call) return atom.name;
  std::vector<std::string> arguments;
  for (const SymExpr& argument : atom.arguments) arguments.push_back(argument.str());
  return fmt::format("{}({})", atom.name, fmt::join(arguments, ", "));
}

std::string print_factors(const Monomial& factors) {
  std::vector<std::string> parts;
  for (auto begin = factors.begin(); begin != factors.end();) {
    const auto end = std::find_if(begin, factors.end(), [&](const AtomPtr& f) { return compare(*f, **begin) != 0; });
    const auto power = end - begin;
    parts.push_back(power == 1 ? print_atom(**begin) : fmt::format("{}**{}", print_atom(**begin), power));
    begin = end;
  }
  return fmt::format("{}", fmt::join(parts, "*"));
}

// Without the sign. The magnitude is unsigned so that the smallest integer has one.
std::string print_magnitude(const MonomialTerm& term) {
  const auto bits = static_cast<std::uint64_t>(term.coefficient);
  const std::uint64_t magnitude = term.coefficient < 0 ? 0 - bits : bits;
  if (term.factors.empty()) return fmt::format("{}", magnitude);
  const std::string factors = print_factors(term.factors);
  return magnitude == 1 ? factors : fmt::format("{}*{}", magnitude, factors);
}

std::string_view separator(bool is_negative, bool is_first) {
  if (is_first) return is_negative ? "-" : "";
  return is_negative ? " - " : " + ";
}

// Positive terms, negative terms, the constant: `seq - past + 1`; a positive constant leads if nothing else is
// positive.
std::vector<MonomialTerm> printing_order(const SymExpr& e) {
  std::vector<MonomialTerm> terms = SymExpr::Node::terms_of(e);
  const std::int64_t constant = SymExpr::Node::constant_of(e);
  const auto is_positive = [](const MonomialTerm& term) { return term.coefficient > 0; };
  const auto negative = std::stable_partition(terms.begin(), terms.end(), is_positive);
  if (constant == 0) return terms;
  const bool leads = constant > 0 && negative == terms.begin();
  terms.insert(leads ? terms.begin() : terms.end(), MonomialTerm{{}, constant});
  return terms;
}

}  // namespace

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  throw Overflow(fmt::format("{} + {} does not fit into 64 bits", a, b));
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  throw Overflow(fmt::format("{} * {} does not fit into 64 bits", a, b));
}

std::strong_ordering compare(const SymAtom& a, const SymAtom& b) {
  if (&a == &b) return std::strong_ordering::equal;
  if (a.is_call != b.is_call) return a.is_call <=> b.is_call;
  if (const auto order = a.name <=> b.name; order != 0) return order;
  return std::lexicographical_compare_three_way(a.arguments.begin(), a.arguments.end(), b.arguments.begin(),
                                                b.arguments.end(),
                                                [](const SymExpr& x, const SymExpr& y) { return compare(x, y); });
}

std::strong_ordering compare(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size()) return b.size() <=> a.size();
  return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end(),
                                                [](const AtomPtr& x, const AtomPtr& y) { return compare(*x, *y); });
}

std::strong_ordering compare(const SymExpr& a, const SymExpr& b) {
  const auto by_term = [](const MonomialTerm& x, const MonomialTerm& y) {
    const auto order = compare(x.factors, y.factors);
    return order != 0 ? order : x.coefficient <=> y.coefficient;
  };
  const auto& left = SymExpr::Node::terms_of(a);
  const auto& right = SymExpr::Node::terms_of(b);
  if (&left != &right) {
    const auto order =
        std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end(), by_term);
    if (order != 0) return order;
  }
  return SymExpr::Node::constant_of(a) <=> SymExpr::Node::constant_of(b);
}

SymExpr SymExpr::Node::make(std::vector<MonomialTerm> terms, std::int64_t constant) {
  SymExpr e(constant);
  if (terms.empty()) return e;
  const std::size_t hash = hash_terms(terms);
  e.node_ = std::make_shared<const Node>(Node{std::move(terms), hash});
  return e;
}

SymExpr SymExpr::Node::atom(SymAtom atom) { return from_atom(std::make_shared<const SymAtom>(std::move(atom))); }

const std::vector<MonomialTerm>& SymExpr::Node::terms_of(const SymExpr& e) {
  static const std::vector<MonomialTerm> kNone;
  return e.node_ ? e.node_->terms : kNone;
}

SymExpr::SymExpr(std::int64_t value) : value_(value) {}

SymExpr SymExpr::symbol(std::string_view name) {
  if (is_name(name)) return Node::atom({std::string(name), {}, false});
  throw InvalidArgument(
      fmt::format("'{}' cannot name a dimension; use letters, digits, '_' and '.', with a letter or '_' first", name));
}

std::optional<std::int64_t> SymExpr::constant() const noexcept {
  return is_constant() ? std::optional(value_) : std::nullopt;
}

std::optional<std::string> SymExpr::symbol_name() const {
  if (is_constant() || value_ != 0 || node_->terms.size() != 1) return std::nullopt;
  const MonomialTerm& term = node_->terms.front();
  if (term.coefficient != 1 || term.factors.size() != 1 || term.factors.front()->is_call) return std::nullopt;
  return term.factors.front()->name;
}

std::optional<std::pair<std::string, std::vector<SymExpr>>> SymExpr::as_call() const {
  if (is_constant() || value_ != 0 || node_->terms.size() != 1) return std::nullopt;
  const MonomialTerm& term = node_->terms.front();
  if (term.coefficient != 1 || term.factors.size() != 1 || !term.factors.front()->is_call) return std::nullopt;
  return std::pair(term.factors.front()->name, term.factors.front()->arguments);
}

std::vector<std::string> SymExpr::symbols() const {
  std::set<std::string> names;
  collect_symbols(*this, names);
  return {names.begin(), names.end()};
}

SymExpr SymExpr::substitute(const std::map<std::string, SymExpr>& values) const {
  SymExpr sum = value_;
  for (const MonomialTerm& term : Node::terms_of(*this)) {
    SymExpr product = term.coefficient;
    for (const AtomPtr& factor : term.factors) product = product * substitute_atom(factor, values);
    sum = sum + product;
  }
  return sum;
}

std::optional<std::int64_t> SymExpr::evaluate(const std::map<std::string, std::int64_t>& values) const {
  std::map<std::string, SymExpr> constants;
  for (const std::string& symbol : symbols()) {
    const auto found = values.find(symbol);
    if (found == values.end()) return std::nullopt;
    constants.emplace(symbol, found->second);
  }
  return substitute(constants).constant();
}

std::string SymExpr::str() const {
  if (is_constant()) return fmt::format("{}", value_);
  std::string text;
  for (const MonomialTerm& term : printing_order(*this)) {
    text += separator(term.coefficient < 0, text.empty());
    text += print_magnitude(term);
  }
  return text;
}

std::size_t SymExpr::hash() const noexcept {
  return combine(node_ ? node_->hash : 0, std::hash<std::int64_t>()(value_));
}

std::vector<SymExpr::Term> SymExpr::terms() const {
  std::vector<Term> result;
  for (const MonomialTerm& term : printing_order(*this)) {
    Term& added = result.emplace_back(Term{term.coefficient, {}});
    for (const AtomPtr& factor : term.factors) added.factors.push_back(from_atom(factor));
  }
  return result;
}

SymExpr operator+(const SymExpr& a, const SymExpr& b) {
  const std::int64_t constant = checked_add(a.value_, b.value_);
  if (a.node_ && b.node_) return SymExpr::Node::make(merge(a.node_->terms, b.node_->terms), constant);
  SymExpr sum = a.node_ ? a : b;
  sum.value_ = constant;
  return sum;
}

SymExpr operator-(const SymExpr& a, const SymExpr& b) { return a + scale(b, -1); }

SymExpr operator*(const SymExpr& a, const SymExpr& b) {
  if (b.is_constant()) return scale(a, b.value_);
  const std::size_t products = SymExpr::Node::terms_of(a).size() * b.node_->terms.size();
  if (products > kMostProducts) throw Overflow("a product of sizes has too many terms");
  SymExpr sum = scale(a, b.value_);
  for (const MonomialTerm& term : b.node_->terms) sum = sum + multiply_term(a, term);
  return sum;
}

bool operator==(const SymExpr& a, const SymExpr& b) {
  if (a.value_ != b.value_) return false;
  if (a.node_ == b.node_) return true;
  return a.hash() == b.hash() && compare(a, b) == 0;
}

bool operator<(const SymExpr& a, const SymExpr& b) { return compare(a, b) < 0; }

}  // namespace exportguard
