// Reads expressions: what `SymExpr::str` prints, and sympy's printing of torch's expressions.
#include <fmt/format.h>

#include <charconv>
#include <numeric>

#include "common/symbolic_node.h"
#include "exportguard/common/errors.h"

namespace exportguard {
namespace {

using Node = SymExpr::Node;

// sympy prints exact fractions as `a/b`; they only mean an integer inside floor() or ceiling().
constexpr std::string_view kFraction = "TrueDiv";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

SymExpr divide_exactly(const SymExpr& a, const SymExpr& b) {
  const SymExpr quotient = floor_div(a, b);
  return quotient * b == a ? quotient : SymExpr::call(kFraction, {a, b});
}

struct Fraction {
  SymExpr numerator;
  std::int64_t denominator;
};

// One summand of what stands inside floor(): the numerator and denominator of `3*TrueDiv(a, 2)`, or the summand over 1.
std::optional<Fraction> term_fraction(const SymExpr::Term& term) {
  Fraction result{term.coefficient, 1};
  for (const SymExpr& factor : term.factors) {
    const auto call = factor.as_call();
    const bool is_fraction = call && call->first == kFraction;
    if (is_fraction && !call->second[1].constant()) return std::nullopt;
    result.numerator = result.numerator * (is_fraction ? call->second[0] : factor);
    if (is_fraction) result.denominator = checked_multiply(result.denominator, *call->second[1].constant());
  }
  return result;
}

std::optional<Fraction> sum_fraction(const SymExpr& e) {
  Fraction sum{0, 1};
  for (const SymExpr::Term& term : e.terms()) {
    const auto part = term_fraction(term);
    if (!part) return std::nullopt;
    const std::int64_t common =
        checked_multiply(sum.denominator / std::gcd(sum.denominator, part->denominator), part->denominator);
    sum.numerator = sum.numerator * (common / sum.denominator) + part->numerator * (common / part->denominator);
    sum.denominator = common;
  }
  return sum;
}

bool is_integer_call(std::string_view function) {
  return function == "FloorDiv" || function == "Mod" || function == "Max" || function == "Min";
}

// Whether every part of it is known to be an integer, so that rounding changes nothing.
bool is_integer(const SymExpr& e) {
  for (const SymExpr::Term& term : e.terms()) {
    for (const SymExpr& factor : term.factors) {
      const auto call = factor.as_call();
      if (call && !is_integer_call(call->first)) return false;
    }
  }
  return true;
}

// floor(a/b) where everything inside is a fraction with a constant denominator, or one fraction alone.
SymExpr round_fraction(std::string_view function, const SymExpr& e) {
  if (is_integer(e)) return e;
  const std::string_view division = function == "floor" ? "FloorDiv" : "CeilDiv";
  if (const auto call = e.as_call(); call && call->first == kFraction) {
    return SymExpr::call(division, call->second);
  }
  const auto fraction = sum_fraction(e);
  if (!fraction || fraction->denominator == 1) return SymExpr::call(function, {e});
  return SymExpr::call(division, {fraction->numerator, fraction->denominator});
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  SymExpr parse() {
    SymExpr result = sum();
    skip_blanks();
    if (position_ != text_.size()) fail(fmt::format("unexpected '{}'", text_[position_]));
    return result;
  }

 private:
  SymExpr sum() {
    SymExpr result = product();
    for (;;) {
      if (accept("+")) {
        result = result + product();
      } else if (accept("-")) {
        result = result - product();
      } else {
        return result;
      }
    }
  }

  SymExpr product() {
    SymExpr result = signed_power();
    for (;;) {
      if (accept("//")) {
        result = floor_div(result, signed_power());
      } else if (accept("/")) {
        result = divide_exactly(result, signed_power());
      } else if (accept("%")) {
        result = mod(result, signed_power());
      } else if (accept("*")) {
        result = result * signed_power();
      } else {
        return result;
      }
    }
  }

  SymExpr signed_power(int before = 0) {
    if (before > kDeepest) fail(fmt::format("more than {} signs and powers in a row", kDeepest));
    if (accept("-")) return SymExpr(0) - signed_power(before + 1);
    if (accept("+")) return signed_power(before + 1);
    const SymExpr base = primary();
    return accept("**") ? SymExpr::call("Pow", {base, signed_power(before + 1)}) : base;
  }

  SymExpr primary() {
    skip_blanks();
    if (accept("(")) {
      SymExpr inner = nested_sum();
      expect(")");
      return inner;
    }
    if (position_ < text_.size() && is_digit(text_[position_])) return number();
    if (position_ < text_.size() && is_letter(text_[position_])) return name_or_call();
    fail(position_ < text_.size() ? fmt::format("expected a number, a name or '(', got '{}'", text_[position_])
                                  : "expected a number, a name or '(', got the end");
  }

  SymExpr nested_sum() {
    if (++depth_ > kDeepest) fail(fmt::format("more than {} levels of parentheses", kDeepest));
    SymExpr result = sum();
    --depth_;
    return result;
  }

  SymExpr number() {
    std::int64_t value = 0;
    const char* begin = text_.data() + position_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("the number does not fit into 64 bits");
    position_ += static_cast<std::size_t>(end - begin);
    if (position_ < text_.size() && (is_letter(text_[position_]) || text_[position_] == '.')) {
      fail(fmt::format("unexpected '{}' in an integer", text_[position_]));
    }
    return value;
  }

  SymExpr name_or_call() {
    const std::size_t begin = position_;
    const auto is_inner = [](char c) { return is_letter(c) || is_digit(c) || c == '.'; };
    while (position_ < text_.size() && is_inner(text_[position_])) ++position_;
    const std::string_view name = text_.substr(begin, position_ - begin);
    if (!accept("(")) return SymExpr::symbol(name);
    const std::vector<SymExpr> arguments = call_arguments();
    try {
      return call(name, arguments);
    } catch (const InvalidArgument& error) {
      fail(error.what());
    }
  }

  std::vector<SymExpr> call_arguments() {
    std::vector<SymExpr> arguments;
    if (accept(")")) return arguments;
    do {
      arguments.push_back(nested_sum());
    } while (accept(","));
    expect(")");
    return arguments;
  }

  static SymExpr call(std::string_view name, const std::vector<SymExpr>& arguments) {
    if ((name == "floor" || name == "ceiling") && arguments.size() == 1) return round_fraction(name, arguments[0]);
    if (name == "ModularIndexing" && arguments.size() == 3) {
      return mod(floor_div(arguments[0], arguments[1]), arguments[2]);
    }
    return SymExpr::call(name, arguments);
  }

  void skip_blanks() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t')) ++position_;
  }

  bool accept(std::string_view token) {
    skip_blanks();
    if (text_.substr(position_, token.size()) != token) return false;
    // `*` does not take the first half of `**`.
    if (token == "*" && text_.substr(position_, 2) == "**") return false;
    position_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (accept(token)) return;
    fail(position_ < text_.size() ? fmt::format("expected '{}', got '{}'", token, text_[position_])
                                  : fmt::format("expected '{}', got the end", token));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ParseError(fmt::format("{} in symbolic expression '{}'", what, text_), 1, position_ + 1);
  }

  static constexpr int kDeepest = 200;  // a level is a handful of stack frames

  std::string_view text_;
  std::size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

SymExpr SymExpr::parse(std::string_view text) { return Parser(text).parse(); }

}  // namespace exportguard
