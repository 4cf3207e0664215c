#pragma once

#include <exportguard/lowering/size_checks.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace exportguard::python {

using TextRelation = std::tuple<std::string, std::string, std::string, bool>;
using NamedSize = std::tuple<std::string, std::string, std::int64_t>;

/// A check as Python has it (`exportguard.size_checks.SizeCheck`): the condition, its relations, where its symbols are.
using NamedCheck = std::tuple<std::string, std::vector<TextRelation>, std::vector<NamedSize>>;
/// An input, one of its axes, and what that is called.
using NamedAxis = std::tuple<std::string, std::int64_t, std::string>;

/// `lowering::refuse_other_sizes` of checks that Python has made.
std::size_t refuse_other_sizes(ir::Model& model, const std::vector<NamedCheck>& checks,
                               const std::vector<NamedAxis>& names);

}  // namespace exportguard::python
