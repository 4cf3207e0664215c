#pragma once

#include <string_view>

namespace exportguard {

/// `0.1.0`.
std::string_view version() noexcept;

/// The torch this library was compiled against, `2.13.0+cpu`. Its minor must be that of the torch in the process.
std::string_view torch_version_built_against() noexcept;

}  // namespace exportguard
