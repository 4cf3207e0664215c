#include "serialization/dim_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <optional>

#include "exportguard/common/errors.h"
#include "serialization/proto_values.h"

namespace exportguard::serialization {
namespace {

// A symbol that stands for a text has it behind this, each byte that a symbol cannot have as `.3a.`.
constexpr std::string_view kMark = "_text.";
// A size that is like no other, which has no name in a file.
constexpr std::string_view kUnknown = "_unknown.";

bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string symbol_for(std::string_view text) {
  std::string symbol(kMark);
  for (const char c : text) {
    if (is_plain(c)) {
      symbol += c;
    } else {
      symbol += fmt::format(".{:02x}.", static_cast<unsigned char>(c));
    }
  }
  return symbol;
}

/// What a symbol stands for; nothing if it has no such text.
std::optional<std::string> text_of(std::string_view symbol) {
  if (!symbol.starts_with(kMark)) return std::nullopt;
  std::string text;
  for (std::size_t at = kMark.size(); at < symbol.size(); ++at) {
    if (symbol[at] != '.') {
      text += symbol[at];
      continue;
    }
    unsigned char byte = 0;
    if (at + 3 >= symbol.size() || symbol[at + 3] != '.') return std::nullopt;
    const auto end = symbol.data() + at + 3;
    if (std::from_chars(symbol.data() + at + 1, end, byte, 16).ptr != end) return std::nullopt;
    text += static_cast<char>(byte);
    at += 3;
  }
  return text;
}

// An expression as one that is written has it: `past + seq` is a sum, `past-seq` and `3` are names like any others.
std::optional<ir::Dim> parsed(const std::string& text) {
  try {
    ir::Dim expression = SymExpr::parse(text);
    const bool is_number = expression.constant().value_or(-1) >= 0;
    return expression.str() == text && !is_number ? std::optional(std::move(expression)) : std::nullopt;
  } catch (const ParseError&) {
    return std::nullopt;
  } catch (const InvalidArgument&) {  // numbers that do not fit
    return std::nullopt;
  }
}

}  // namespace

ir::Dim unknown_size() {
  static std::atomic<std::uint64_t> count{0};
  return SymExpr::symbol(fmt::format("{}{}", kUnknown, count++));
}

ir::Dim read_dim_name(const std::string& text) {
  require_text(text);
  const bool is_marked = text.find(kMark) != std::string::npos || text.find(kUnknown) != std::string::npos;
  const auto expression = is_marked ? std::nullopt : parsed(text);
  if (!expression) return SymExpr::symbol(symbol_for(text));
  return expression->constant().value_or(0) < 0 ? unknown_size() : *expression;
}

std::string dim_name(const ir::Dim& dim) {
  const std::string expression = dim.str();
  std::string name;
  for (std::size_t at = 0; at < expression.size();) {
    std::size_t end = at;
    while (end < expression.size() && (is_plain(expression[end]) || expression[end] == '.')) ++end;
    const std::string_view word = std::string_view(expression).substr(at, std::max<std::size_t>(end - at, 1));
    if (word.starts_with(kUnknown)) return {};
    name += text_of(word).value_or(std::string(word));
    at += word.size();
  }
  return name;
}

}  // namespace exportguard::serialization
