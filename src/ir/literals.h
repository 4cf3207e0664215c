#pragma once

#include <string>
#include <string_view>

namespace exportguard::ir {

/// Characters that a name may have behind its first one without being quoted.
bool is_name_character(char c);

/// Whether a name can stand without quotes: a letter or `_`, then letters, digits and `_ . $ / -`.
bool is_bare_name(std::string_view text);

/// `"text"` with `\" \\ \n \r \t \xNN`.
std::string quoted(std::string_view text);

/// The name as it is, or quoted.
std::string spelled(std::string_view name);

/// The shortest text that reads back as the same number, never like an integer: `1.0`, `1e+20`, `nan`, `-inf`.
std::string float_text(double number);
std::string float_text(float number);

}  // namespace exportguard::ir
