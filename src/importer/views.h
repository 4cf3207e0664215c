#pragma once

#include <cstddef>

#include "exportguard/ir/graph.h"
#include "importer/torch_call.h"

namespace exportguard::importer {

/// Whether the view shows every element of its argument in the same shape.
bool is_identity_view(const ir::Node& view);

/// Whether the view of a contiguous tensor is contiguous.
bool keeps_contiguity(const ir::Node& view);

/// One result of a node that takes views.
struct ViewOutput {
  const ir::Node& node;
  std::size_t output;
};

/// Whether two views of the same tensor surely show different parts of it: two selected entries, two halves of a split.
bool shows_other_part(const ViewOutput& a, const ViewOutput& b);

/// A write into a view, to be put back into what the view was taken of.
struct ScatterBack {
  const ir::Node& view;  ///< took the part of the whole
  std::size_t output;    ///< the output of `view` that the part is
  ir::Value& whole;      ///< before the write
  ir::Value& part;       ///< after it
};

/// The whole with the part in its place.
/// @throws ImportError if the view shows an element twice (`expand`), or how it lies in memory is not known
/// (`as_strided`).
ir::Value& scatter_back(const ScatterBack& back, const TorchCall& call);

}  // namespace exportguard::importer
