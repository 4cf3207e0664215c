#pragma once

#include <cstddef>
#include <cstdint>

#include "exportguard/ir/graph.h"

namespace exportguard::importer {

// An operator whose schema leaves open whether its results share the memory of an argument (`reshape`, `to`, and what
// torch composes of others) may carry the attribute `shares`: the position of that argument, or one of these.
constexpr std::int64_t kOwns = -1;            ///< it is a copy
constexpr std::int64_t kDependsOnSizes = -2;  ///< the sizes at run time decide whether it is a view or a copy

struct FunctionalizeReport {
  std::size_t rewritten = 0;      ///< in-place nodes made functional
  std::size_t extra_outputs = 0;  ///< mutated inputs and buffers that became outputs
};

/// Makes a torch-level graph free of side effects: an in-place operator (its schema writes to an argument) becomes its
/// functional form, a write into a view is scattered back into the tensor that the view was taken of, and everything
/// that shares that memory is computed from the new value from then on. An input or buffer that was written becomes an
/// extra output, behind the others, named `<input>_mutated` (its own name for a buffer:
/// `<fully.qualified.name>_mutated`). Nested graphs are done too.
/// @throws ImportError for a write that cannot be expressed (into an expanded tensor), and for a read of memory of
/// which the sizes at run time decide whether it was written; both with operator and source line.
FunctionalizeReport functionalize(ir::Graph& graph);

}  // namespace exportguard::importer
