#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exportguard/ir/graph.h"
#include "exportguard/serialization/onnx_file.h"
#include "serialization/output_file.h"

namespace exportguard::serialization {

/// Where each tensor stands in the data file. Tensors that show the same memory share one place.
class DataLayout {
 public:
  struct Slot {
    std::int64_t offset;
    std::int64_t bytes;
  };

  DataLayout() = default;  ///< everything inline
  DataLayout(const ir::Model& model, const SaveOptions& options, std::string location);

  bool is_empty() const { return tensors_.empty(); }
  const std::string& location() const { return location_; }  ///< the data file's name, relative to the model
  /// Nothing for a tensor that stays inline.
  std::optional<Slot> find(const ir::Tensor& tensor) const;
  /// Streams the elements of every tensor from its own storage. @throws FileError.
  void write(OutputFile& file) const;

 private:
  struct Placed {
    const ir::Tensor* tensor;
    Slot slot;
  };

  void place(const ir::Tensor& tensor, std::size_t alignment);

  std::string location_;
  std::map<std::string, Slot> slots_;  // by identity
  std::vector<Placed> tensors_;
  std::int64_t end_ = 0;
};

/// Every initializer of the model, nested graphs and functions included.
std::vector<const ir::Tensor*> initializers_of(const ir::Model& model);

/// Bytes that the model's initializers take inline, where each is written out.
std::size_t inline_bytes(const ir::Model& model);

}  // namespace exportguard::serialization
