#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>

namespace exportguard::ir {

struct Token {
  enum class Kind : std::uint8_t {
    kEnd,
    kName,      ///< `graph`, `aten.add.Tensor`
    kValue,     ///< `%x`, `%"odd name"`
    kSymbol,    ///< `@cpu`
    kInteger,   ///< `-1`
    kFloat,     ///< `1.5`, `nan`, `-inf`
    kString,    ///< `"text"`
    kEllipsis,  ///< `...`
    kScope,     ///< `::`
    kMark,      ///< one character: `( ) [ ] { } , = : ; .`
  };

  Kind kind = Kind::kEnd;
  std::string text;  ///< without `%`, `@` and quotes, escapes resolved
  bool is_quoted = false;
  std::int64_t integer = 0;  ///< of kInteger
  double number = 0;         ///< of kInteger and kFloat
  std::size_t offset = 0;
};

/// Reads the text format one token at a time; the parsers built on it look at `token()` and go on.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  const Token& token() const { return token_; }
  void advance();

  bool is(char mark) const { return token_.kind == Token::Kind::kMark && token_.text.front() == mark; }
  bool is_word(std::string_view word) const;
  bool accept(char mark);  ///< goes on if this is the token
  bool accept_word(std::string_view word);
  void expect(char mark, std::string_view what);

  std::string take_name(std::string_view what);  ///< quoted or bare
  std::string take_string(std::string_view what);
  std::int64_t take_integer(std::string_view what);
  double take_number(std::string_view what);  ///< an integer or a float
  std::complex<double> take_complex();        ///< `complex(1.0, -2.0)`

  /// The text behind the current token up to `close`, brackets inside it balanced; the token then is `close`.
  std::string_view take_raw(char close);
  /// Where a part that `take_raw` returned begins.
  std::size_t offset_of(std::string_view part) const { return static_cast<std::size_t>(part.data() - text_.data()); }

  /// @throws ParseError at the current token.
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_at(std::size_t offset, const std::string& what) const;
  /// `expected <what>, got <the token>`.
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  char peek(std::size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  void skip_blanks();
  void read_token();
  void read_name();
  void read_prefixed(Token::Kind kind);
  void read_number();
  void read_string();
  void read_mark();
  char read_escape();
  bool starts_number() const;

  std::string_view text_;
  std::size_t position_ = 0;
  Token token_;
};

}  // namespace exportguard::ir
