#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "exportguard/ir/graph.h"

namespace exportguard::serialization {

enum class ExternalData {
  kAuto,    ///< external when all initializers together exceed `SaveOptions::inline_limit`
  kAlways,  ///< every tensor of at least `min_external_bytes` goes to the data file
  kNever,   ///< everything inline. @throws FileError above 2 GB
};

struct SaveOptions {
  ExternalData external_data = ExternalData::kAuto;
  std::size_t inline_limit = std::size_t{16} << 20;  ///< bytes
  std::size_t min_external_bytes = 1024;             ///< smaller tensors stay inline
  std::size_t alignment = 4096;                      ///< of offsets in the data file, bytes
  bool sources = true;                               ///< module path and source line as metadata of each node
};

/// Writes `path` and, if needed, `path + ".data"` beside it; a file of that name which no model at `path` reads stays,
/// and the data gets a number in its name. Links are followed, and files keep the mode of those they replace. Both are
/// written under temporary names in the same folder and renamed at the end, so that neither name ever shows a partial
/// file; on failure the temporary files are removed and what stood there before stays. Weights are streamed from their
/// own storage; tensors that show the same memory are written once. A data file that the earlier model of that name
/// read is removed once the new one stands without it, and so is what saves left in the folder whose processes are
/// dead.
/// @throws FileError naming the path and the system's reason (unwritable, full disk, a name that is too long, a
/// device).
/// @throws GraphError if a torch-level node is left, or the model has no outputs.
void save(const ir::Model& model, const std::filesystem::path& path, const SaveOptions& options = {});

/// The same as bytes of a ModelProto, everything inline. @throws FileError above 2 GB.
std::string to_bytes(const ir::Model& model, const SaveOptions& options = {});

/// Reads an ONNX file of any producer. External data is mapped, not copied, and must lie in the model's folder; the
/// file may be removed but not overwritten while the model lives. An input that has an initializer is read as that
/// constant, a sparse tensor is made dense, a local function with attributes becomes one for each set of values it is
/// called with.
/// @throws FileError naming the path and the node or tensor, for a file that is cut short, values that nothing defines,
///   nodes that are not in order, sizes that do not fit, data outside the folder, and kinds of values that the IR
///   lacks.
/// @throws GraphError for names that collide.
ir::Model load(const std::filesystem::path& path);

/// The same of the bytes of a ModelProto, without external data.
ir::Model from_bytes(std::span<const std::byte> bytes);

/// onnx's own checker, with shape inference if `full`. @throws GraphError with the checker's text.
void check(const std::string& model_bytes, bool full = false);
void check_file(const std::filesystem::path& path, bool full = false);

/// onnx's shape inference over the model (without weights); bytes of a ModelProto in and out.
std::string infer_shapes(const std::string& model_bytes, bool strict = false);

/// The newest opset of the ONNX domain that the onnx library built in knows.
int newest_opset();

}  // namespace exportguard::serialization
