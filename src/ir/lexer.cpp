#include "ir/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "exportguard/common/errors.h"
#include "ir/literals.h"

namespace exportguard::ir {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd:
      return "the end of the text";
    case Kind::kValue:
      return fmt::format("the value %{}", token.text);
    case Kind::kString:
      return ir::quoted(token.text);
    case Kind::kSymbol:
      return fmt::format("@{}", token.text);
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace

// ------------------------------------------------------------------------------------------------ questions

bool Lexer::is_word(std::string_view word) const { return token_.kind == Kind::kName && token_.text == word; }

bool Lexer::accept(char mark) {
  if (!is(mark)) return false;
  advance();
  return true;
}

bool Lexer::accept_word(std::string_view word) {
  if (!is_word(word)) return false;
  advance();
  return true;
}

void Lexer::expect(char mark, std::string_view what) {
  if (!accept(mark)) fail_expected(what);
}

std::string Lexer::take_name(std::string_view what) {
  if (token_.kind != Kind::kName && token_.kind != Kind::kString) fail_expected(what);
  std::string name = std::move(token_.text);
  advance();
  return name;
}

std::string Lexer::take_string(std::string_view what) {
  if (token_.kind != Kind::kString) fail_expected(what);
  return take_name(what);
}

std::int64_t Lexer::take_integer(std::string_view what) {
  if (token_.kind != Kind::kInteger) fail_expected(what);
  const std::int64_t number = token_.integer;
  advance();
  return number;
}

double Lexer::take_number(std::string_view what) {
  if (token_.kind != Kind::kInteger && token_.kind != Kind::kFloat) fail_expected(what);
  const double number = token_.number;
  advance();
  return number;
}

std::complex<double> Lexer::take_complex() {
  if (!accept_word("complex")) fail_expected("complex(…, …)");
  expect('(', "'(' behind complex");
  const double real = take_number("the real part");
  expect(',', "',' between the parts of a complex number");
  const double imaginary = take_number("the imaginary part");
  expect(')', "')' behind a complex number");
  return {real, imaginary};
}

std::string_view Lexer::take_raw(char close) {
  const std::size_t begin = position_;
  int depth = 0;
  for (; position_ < text_.size() && (depth > 0 || peek() != close); ++position_) {
    if (peek() == '(') ++depth;
    if (peek() == ')') --depth;
  }
  const std::string_view raw = text_.substr(begin, position_ - begin);
  if (position_ == text_.size()) fail(fmt::format("expected '{}' behind '{}', got the end of the text", close, raw));
  advance();
  return raw;
}

// ------------------------------------------------------------------------------------------------ faults

void Lexer::fail(const std::string& what) const { fail_at(token_.offset, what); }

void Lexer::fail_at(std::size_t offset, const std::string& what) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  throw ParseError(what, line, column);
}

void Lexer::fail_expected(std::string_view what) const {
  fail(fmt::format("expected {}, got {}", what, describe(token_)));
}

// ------------------------------------------------------------------------------------------------ tokens

void Lexer::advance() {
  skip_blanks();
  token_ = Token();
  token_.offset = position_;
  if (position_ < text_.size()) read_token();
}

void Lexer::skip_blanks() {
  while (position_ < text_.size()) {
    if (peek() == '#') position_ = std::min(text_.find('\n', position_), text_.size());
    if (position_ == text_.size() || std::string_view(" \t\r\n").find(peek()) == std::string_view::npos) return;
    ++position_;
  }
}

void Lexer::read_token() {
  if (peek() == '"') return read_string();
  if (peek() == '%') return read_prefixed(Kind::kValue);
  if (peek() == '@') return read_prefixed(Kind::kSymbol);
  if (starts_number()) return read_number();
  return starts_name(peek()) ? read_name() : read_mark();
}

bool Lexer::starts_number() const {
  const char first = peek() == '-' ? peek(1) : peek();
  return is_digit(first) || (peek() == '-' && first == 'i');
}

void Lexer::read_name() {
  const std::size_t begin = position_;
  while (is_name_character(peek())) ++position_;
  token_.text = text_.substr(begin, position_ - begin);
  token_.kind = Kind::kName;
  if (token_.text != "nan" && token_.text != "inf") return;
  token_.kind = Kind::kFloat;
  token_.number = token_.text == "nan" ? std::nan("") : std::numeric_limits<double>::infinity();
}

// A device has a colon, `@cuda:0`.
void Lexer::read_prefixed(Kind kind) {
  ++position_;
  if (peek() == '"') {
    read_string();
  } else {
    const std::size_t begin = position_;
    while (is_name_character(peek()) || (kind == Kind::kSymbol && peek() == ':')) ++position_;
    token_.text = text_.substr(begin, position_ - begin);
    if (token_.text.empty()) fail(fmt::format("expected a name behind '{}'", text_[begin - 1]));
  }
  token_.kind = kind;
}

void Lexer::read_number() {
  const std::size_t begin = position_++;
  while (is_name_character(peek()) || (peek() == '+' && (text_[position_ - 1] == 'e' || text_[position_ - 1] == 'E'))) {
    ++position_;
  }
  token_.text = text_.substr(begin, position_ - begin);
  const char* first = token_.text.data();
  const char* last = first + token_.text.size();
  const bool is_integer = token_.text.find_first_of(".einE") == std::string::npos;
  token_.kind = is_integer ? Kind::kInteger : Kind::kFloat;
  const auto result =
      is_integer ? std::from_chars(first, last, token_.integer) : std::from_chars(first, last, token_.number);
  if (result.ec == std::errc::result_out_of_range) fail(fmt::format("{} is out of range", token_.text));
  if (result.ec != std::errc() || result.ptr != last) fail(fmt::format("expected a number, got '{}'", token_.text));
  if (is_integer) token_.number = static_cast<double>(token_.integer);
}

void Lexer::read_string() {
  token_.kind = Kind::kString;
  token_.is_quoted = true;
  for (++position_; peek() != '"'; ++position_) {
    if (position_ >= text_.size()) fail("expected '\"' at the end of a string, got the end of the text");
    token_.text += peek() == '\\' ? read_escape() : peek();
  }
  ++position_;
}

// Leaves the position on the last character of the escape.
char Lexer::read_escape() {
  constexpr std::string_view kCodes = "\"\\nrt";
  constexpr std::string_view kCharacters = "\"\\\n\r\t";
  ++position_;
  if (const std::size_t code = kCodes.find(peek()); code != std::string_view::npos) return kCharacters[code];
  const int high = peek() == 'x' ? hex_digit(peek(1)) : -1;
  const int low = high < 0 ? -1 : hex_digit(peek(2));
  if (low < 0) fail_at(position_, "expected one of the escapes \\\" \\\\ \\n \\r \\t \\xNN in a string");
  position_ += 2;
  return static_cast<char>(high * 16 + low);
}

void Lexer::read_mark() {
  constexpr std::string_view kMarks = "()[]{},=:;.";
  if (kMarks.find(peek()) == std::string_view::npos) fail(fmt::format("unexpected character '{}'", peek()));
  token_.kind = Kind::kMark;
  std::size_t length = 1;
  if (text_.substr(position_, 2) == "::") {
    token_.kind = Kind::kScope;
    length = 2;
  } else if (text_.substr(position_, 3) == "...") {
    token_.kind = Kind::kEllipsis;
    length = 3;
  }
  token_.text = text_.substr(position_, length);
  position_ += length;
}

}  // namespace exportguard::ir
