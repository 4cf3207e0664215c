#pragma once

#include <exportguard/ir/graph.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "python/bindings.h"
#include "python/fx_operators.h"
#include "python/fx_types.h"

namespace exportguard::python {

/// Finds out which results of a program share the memory of an argument where the schema leaves that open: `reshape`,
/// `contiguous`, `to`, and every operator that torch composes of others (`dropout`, `meshgrid`, `sum_to_size`).
///
/// For operators that change the shape alone torch's stride rule is applied to the symbolic sizes and strides of the
/// example values. For the others it is seen from the storages of the example values, which a fresh program shares
/// exactly where torch made a view; those of a program that was read from a file share none and tell nothing.
class [[gnu::visibility("hidden")]] FxMemory {
 public:
  /// Remembers one node of the graph; the fx node must stay alive until `mark`.
  void note(py::handle node, const FxOperator& op, ir::Node& made);

  /// Sets the attribute `shares` (importer/functionalize.h) of the nodes that were noted.
  void mark(FxTypes& types) const;

 private:
  std::optional<std::int64_t> storage_mark(py::handle node) const;

  struct Noted {
    py::handle node;
    const FxOperator* op;
    ir::Node* made;
  };

  std::vector<Noted> noted_;
  bool storages_tell_ = true;  ///< false once a view had another storage than what it is a view of
};

/// A tensor without data that looks like another one, in memory of its own. What is known of its symbolic layout is
/// known of the copy as well, where a new tensor of these sizes would have to find it out again. With a type it is a
/// tensor of that, and its memory is as large as its elements are.
at::Tensor alike_in_own_memory(const at::Tensor& model, std::optional<at::ScalarType> type = std::nullopt);

/// A tensor without data that sees the memory of another one in sizes, strides and an offset, which lie within it.
at::Tensor seen_as(const at::Tensor& model, const std::vector<c10::SymInt>& sizes,
                   const std::vector<c10::SymInt>& strides, const c10::SymInt& offset);

/// The example value of a node; null if it has none. Borrowed from the node.
py::handle example_of(py::handle node);

}  // namespace exportguard::python
