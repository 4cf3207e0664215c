#pragma once

#include <exportguard/ir/types.h>

#include <map>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/bindings.h"

namespace exportguard::python {

/// Reads types off the example values that torch keeps for each node. Expressions are parsed once: torch shares the
/// objects behind equal sizes.
class [[gnu::visibility("hidden")]] FxTypes {
 public:
  explicit FxTypes(const std::map<std::string, std::string>& dim_names);

  /// Of a tensor, a SymInt, SymFloat or SymBool, or a number. None and anything else: a type without a dtype.
  /// @throws InvalidArgument for a torch dtype without an ONNX counterpart.
  ir::Type type(py::handle value);

  SymExpr expression(py::handle sym_int);
  SymExpr expression(const c10::SymInt& size);

 private:
  const SymExpr& expression_of(const c10::SymInt& size);
  const SymExpr& parsed(const py::object& sympy_expression);

  std::map<std::string, SymExpr> renamed_;
  std::pmr::monotonic_buffer_resource memory_;                           // of the maps, given back at once
  std::pmr::unordered_map<const void*, SymExpr> by_size_{&memory_};      // torch's node behind a SymInt
  std::pmr::unordered_map<PyObject*, SymExpr> by_expression_{&memory_};  // sympy's expressions are shared too
  // An expression as it was made, and the environment that found more out about it: programs for different sizes have
  // the same expressions, and each an environment of its own.
  std::pmr::map<std::pair<PyObject*, PyObject*>, SymExpr> by_made_{&memory_};
  std::vector<py::object> kept_;  // what the keys point at must live as long
};

}  // namespace exportguard::python
