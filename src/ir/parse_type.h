#pragma once

#include "exportguard/ir/types.h"
#include "ir/lexer.h"

namespace exportguard::ir {

/// Reads what `Type::str` writes. @throws ParseError.
Type parse_type(Lexer& in);

/// Reads the short name of a dtype. @throws ParseError.
DType parse_dtype(Lexer& in);

}  // namespace exportguard::ir
