#include "exportguard/common/errors.h"

#include <fmt/format.h>

namespace exportguard {

ParseError::ParseError(const std::string& what, std::size_t line, std::size_t column)
    : Error(fmt::format("line {}, column {}: {}", line, column, what)), line_(line), column_(column) {}

}  // namespace exportguard
