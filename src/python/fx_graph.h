#pragma once

#include <exportguard/ir/graph.h>

#include <functional>
#include <map>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "importer/program.h"
#include "python/bindings.h"
#include "python/fx_memory.h"
#include "python/fx_operators.h"
#include "python/fx_sources.h"
#include "python/fx_types.h"

namespace exportguard::python {

/// What a node of an fx graph stands for.
struct [[gnu::visibility("hidden")]] FxValue {
  ir::Value* value = nullptr;           ///< a tensor or symbolic number
  std::optional<ir::Argument> literal;  ///< a constant that export specialised
  std::vector<FxValue> items;           ///< of a list or tuple
  bool is_list = false;
  py::handle module;  ///< a nested graph module; borrowed from its owner
};

/// What a marker of a repeated block stands for: a graph whose placeholders are the marker's operands in order.
struct [[gnu::visibility("hidden")]] FxPath {
  std::vector<py::object> placeholders;
  std::vector<py::object> nodes;
  std::unordered_map<std::int64_t, PyObject*> by_number;  ///< what `getitem(marker, number)` is
};

/// What all graphs of one import share.
struct [[gnu::visibility("hidden")]] FxContext {
  /// `main` owns the initializers, those of nested graphs too.
  FxContext(const std::map<std::string, std::string>& dim_names, ir::Graph& main) : types(dim_names), weights(main) {}

  /// The initializer for a tensor: one for each piece of memory, under `name`, or the next free one like it.
  /// @throws ImportError for a tensor that has no elements of its own (fake, meta), or is of a class with its own
  /// operators.
  ir::Value& initializer(const std::string& name, py::handle tensor);

  /// The nodes of a path, listed once.
  const FxPath& path(const py::object& path);

  FxTypes types;
  FxSources sources;
  FxOperators operators;
  importer::Weights weights;
  std::unordered_map<PyObject*, FxPath> paths;  ///< by identity of the path, which the program keeps alive
  bool has_writes = false;
  FxMemory memory;
};

/// Reads the nodes of one fx graph into an ir graph.
class [[gnu::visibility("hidden")]] FxGraphReader {
 public:
  /// Gives a placeholder its meaning, from its name and example value (null if it has none).
  using Placeholder = std::function<FxValue(const std::string& name, py::handle example)>;

  FxGraphReader(FxContext& context, ir::Graph& graph, py::object graph_module);

  /// @returns what the graph returns, in order, lists flattened.
  std::vector<FxValue> read(const Placeholder& placeholder);

 private:
  /// A node under construction.
  struct Call {
    const FxOperator& op;
    std::string name;
    ir::NodeSpec spec;
    std::vector<std::pair<std::string, std::unique_ptr<ir::Graph>>> bodies;
    std::vector<std::string> keywords = {};  ///< those that no parameter of a higher-order operator is named after
  };

  void call_function(py::handle node, std::string name);
  void read_block(py::handle marker);
  void get_attribute(py::handle node, const std::string& name);
  bool fold_getitem(py::handle node, const std::string& name);
  void place_arguments(py::handle node, Call& call);
  void place_keywords(py::handle keywords, Call& call);
  ir::Argument argument(py::handle object, Call& call, std::size_t position);
  ir::Argument list_argument(py::handle list, Call& call, std::size_t position);
  ir::Argument node_argument(const FxValue& value, Call& call, std::size_t position);
  ir::Argument operand(ir::Value& value, Call& call);
  ir::Argument body_argument(py::handle module, Call& call, std::size_t position);
  void append(py::handle node, Call& call);
  void add_returned(py::handle returned, std::vector<FxValue>& results) const;
  const FxValue& value_of(py::handle node) const;

  FxContext& context_;
  ir::Graph& graph_;
  py::object graph_module_;
  const std::string* block_ = nullptr;          ///< the module of the block that is read
  std::pmr::monotonic_buffer_resource memory_;  // of the map, given back at once
  std::pmr::unordered_map<PyObject*, FxValue> values_{&memory_};
};

/// A literal that is neither a list nor symbolic; null counts as None. Nothing for anything else.
std::optional<ir::Argument> find_literal(py::handle object);

/// A nested graph as an ir graph of its own. Placeholders are inputs; a constant among them is a literal where it is
/// read, and no input.
std::unique_ptr<ir::Graph> read_body(FxContext& context, const py::object& graph_module, const std::string& name);

/// What a graph returns for `value`: a number becomes a constant named `name`; null for None and text.
ir::Value* output_value(FxContext& context, const FxValue& value, const std::string& name);

}  // namespace exportguard::python
