#include "ir/literals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace exportguard::ir {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <typename Float>
std::string finite_or_named(Float number) {
  if (std::isnan(number)) return "nan";
  std::string text = fmt::format("{}", number);
  const bool reads_as_float = text.find_first_of(".einf") != std::string::npos;
  return reads_as_float ? text : text + ".0";
}

std::string escaped(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7F ? fmt::format("\\x{:02x}", code) : std::string(1, c);
}

}  // namespace

bool is_name_character(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '$' || c == '/' || c == '-'; }

bool is_bare_name(std::string_view text) {
  if (text.empty() || !is_letter(text.front())) return false;
  if (text == "nan" || text == "inf") return false;  // these read as numbers
  return std::ranges::all_of(text, is_name_character);
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) result += escaped(c);
  return result + '"';
}

std::string spelled(std::string_view name) { return is_bare_name(name) ? std::string(name) : quoted(name); }

std::string float_text(double number) { return finite_or_named(number); }
std::string float_text(float number) { return finite_or_named(number); }

}  // namespace exportguard::ir
