#include "exportguard/python/patches.h"

#include <fmt/format.h>
#include <pybind11/embed.h>

#include <string>

#include "exportguard/common/errors.h"
#include "exportguard/python/interpreter.h"
#include "python/declared_patch.h"

namespace exportguard::python {
namespace {

std::vector<guard::PatchDeclaration> declared(std::string_view expression, const char* module, const char* function) {
  if (!Interpreter::is_running())
    throw Error("there is no Python interpreter; construct exportguard::python::Interpreter");
  const py::gil_scoped_acquire gil;
  try {
    const py::dict globals = py::module_::import("__main__").attr("__dict__");
    const py::object given = py::eval(std::string(expression), globals);
    std::vector<guard::PatchDeclaration> declarations;
    for (const py::handle patch : py::list(py::module_::import(module).attr(function)(given)))
      declarations.push_back(declaration_of(py::reinterpret_borrow<py::object>(patch)));
    return declarations;
  } catch (const py::error_already_set& error) {
    throw Error(fmt::format("cannot take patches from `{}`: Python raised {}", expression, error.what()));
  }
}

}  // namespace

std::vector<guard::PatchDeclaration> rewrites(std::string_view expression) {
  return declared(expression, "exportguard.rewrites.selection", "as_rewrites");
}

std::vector<guard::PatchDeclaration> custom_patches(std::string_view expression) {
  return declared(expression, "exportguard.guard.custom", "as_patches");
}

}  // namespace exportguard::python
