#pragma once

#include <string_view>
#include <vector>

#include "exportguard/guard/declaration.h"

namespace exportguard::python {

/// What `torch_export_patches(rewrite=…)` takes, as a Python expression that is evaluated in `__main__`: `'auto'`, or
/// `[Model.forward]`. An `Interpreter` must exist; any thread may call.
///
///     const ExportPatches guard({.dump_rewriting = "sources", .rewrite = python::rewrites("'auto'")});
///
/// @throws Error with the text of what Python raised, and if there is no interpreter.
std::vector<guard::PatchDeclaration> rewrites(std::string_view expression);

/// The same for `custom_patches`: `['rewritten.py']`, or patches that Python code defines.
std::vector<guard::PatchDeclaration> custom_patches(std::string_view expression);

}  // namespace exportguard::python
