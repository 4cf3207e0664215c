#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "exportguard/ir/graph.h"

namespace exportguard::optimizer {

/// What a local function is called.
struct FunctionName {
  std::string domain;
  std::string name;
  friend auto operator<=>(const FunctionName&, const FunctionName&) = default;
};

/// Makes the nodes of each of these modules, by path (`model.layers.3`), a call of a local function; returns how many
/// calls there are. A module within another is a call in the body of that one. Modules with one name and one body,
/// types included, call one function; another body is a function `<name>_2` and so on.
///
/// Tensors of a module come as inputs, so that they may differ from call to call. Its body has what is only arithmetic:
/// whole numbers and bools of at most 64 elements, and single numbers. Where other nodes must be computed between
/// those of a module, it is several calls. A module whose nodes all lie in the body of a Loop or an If stays as it is.
std::size_t outline_modules(ir::Model& model, const std::map<std::string, FunctionName>& modules);

}  // namespace exportguard::optimizer
