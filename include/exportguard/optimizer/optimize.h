#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exportguard/ir/graph.h"
#include "exportguard/optimizer/pattern.h"

namespace exportguard::optimizer {

struct OptimizeOptions {
  Target target = Target::kPortable;
  const PatternTable* table = nullptr;  ///< null: the built-in one
  std::vector<std::string> only;        ///< names of patterns and passes; empty: all
  /// The most positions that a text has, for tables of rotations in the file; 0: it is not known, and there are none.
  std::int64_t positions = 0;
  bool inlines_functions = false;  ///< calls of local functions become what the functions do, before all else
  /// The model was made by builders and by nothing else: what it says of types need not be inferred again. Of a file
  /// that was read it may be what was so once.
  bool are_types_inferred = false;
};

/// What one pattern or pass did.
struct PatternReport {
  std::string name;
  std::size_t applied = 0;
  double seconds = 0;
  std::map<std::string, std::size_t> refusals;  ///< reason → times
};

struct Report {
  std::vector<PatternReport> patterns;  ///< those that were tried, in the order of the table
  std::size_t nodes_before = 0;         ///< nested graphs and functions included
  std::size_t nodes_after = 0;
  double seconds = 0;  ///< wall time
};

/// Improves every graph of the model in place; the outputs stay what they are. Torch-level nodes are left alone. A node
/// that takes the place of several carries the sources of all of them. Linear in the number of nodes.
/// @throws InvalidArgument for a name in `only` that no pattern or pass has, and if patterns make ever more nodes for
///   each other.
/// @throws GraphError if functions cannot be inlined, since one calls itself.
Report optimize(ir::Model& model, const OptimizeOptions& options = {});

/// Whether all inputs of four axes are caches that may be buffers longer than what they hold, as
/// `Target::kOnnxRuntimeGenai` makes them where it can.
bool keeps_caches_in_one_buffer(const ir::Model& model);

/// Names of the passes that `only` may name, which are not patterns: `dead_code`, `common_subexpressions`.
std::vector<std::string> pass_names();

}  // namespace exportguard::optimizer
