#pragma once

#include <string_view>

#include "exportguard/ir/graph.h"

namespace exportguard::ir {

/// An input of a file that may be left out, as an initializer of its name is its default, is a node: its operand is the
/// initializer, its output what the caller gives, or the default. Nothing folds it, as its domain is nobody else's. In
/// a file it is the input and the initializer again.
inline constexpr std::string_view kDefaultInputDomain = "exportguard";
inline constexpr std::string_view kDefaultInput = "DefaultInput";
/// An attribute: its place among all inputs of the file.
inline constexpr const char* kPlaceOfInput = "place";

inline bool is_default_input(const Node& node) { return node.is(kDefaultInputDomain, kDefaultInput); }

}  // namespace exportguard::ir
