#pragma once

#include <string>

#include "exportguard/ir/types.h"

namespace exportguard::serialization {

/// What a file calls a size: an expression over names, as `dim_name` writes it, or any other text, for which a symbol
/// stands. Equal texts are equal sizes. A negative number is a size that is like no other.
/// @throws FileError unless the text is UTF-8.
ir::Dim read_dim_name(const std::string& text);

/// The text for a file, with what `read_dim_name` was given in the place of its symbols; empty if a size is in it that
/// is like no other.
std::string dim_name(const ir::Dim& dim);

/// A size that is like no other.
ir::Dim unknown_size();

}  // namespace exportguard::serialization
