#pragma once

#include <string>

#include "exportguard/ir/tensor.h"
#include "exportguard/ir/types.h"
#include "ir/lexer.h"

namespace exportguard::ir {

/// `{1.0, 2.0}`, or `{...}` if there are more elements than `max_elements`.
std::string elements_text(const Tensor& tensor, std::size_t max_elements);

/// Reads what `elements_text` wrote, for a tensor of that type. @throws ParseError.
Tensor parse_elements(Lexer& in, const Type& type);

}  // namespace exportguard::ir
