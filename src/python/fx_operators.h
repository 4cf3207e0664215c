#pragma once

#include <exportguard/ir/graph.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/bindings.h"

namespace c10 {
struct FunctionSchema;
}

namespace exportguard::python {

/// The callable of a node, as the graph names it.
struct FxOperator {
  enum class Kind { kSchema, kFunction, kHigherOrder, kGetItem, kMarker };

  Kind kind = Kind::kFunction;
  std::string domain;                           ///< `aten`, `operator`, `higher_order`
  std::string op;                               ///< `add.Tensor`, `add`, `cond`
  std::string target;                           ///< both: `aten.add.Tensor`
  const c10::FunctionSchema* schema = nullptr;  ///< kSchema
  std::vector<std::string> parameters;  ///< kHigherOrder: names of its Python parameters, as far as it names them
  bool writes = false;                  ///< into one of its arguments
  bool may_copy = false;                ///< torch composes it of others: its schema does not tell what it shares
  bool is_view = false;                 ///< as its schema says

  /// Where a keyword argument goes; nothing if there is no such parameter.
  std::optional<std::size_t> position_of(std::string_view keyword) const;
  /// What an argument that was left out is; nothing if the schema has no default.
  std::optional<ir::Argument> default_of(std::size_t position) const;
};

/// Operators by identity of the callable, each looked up once.
class [[gnu::visibility("hidden")]] FxOperators {
 public:
  /// @throws ImportError for a callable that has no name.
  const FxOperator& of(py::handle target);

 private:
  std::unordered_map<PyObject*, FxOperator> operators_;
  std::vector<py::object> kept_;
};

}  // namespace exportguard::python
