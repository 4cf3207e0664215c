#include "serialization/external_data.h"

#include <set>

namespace exportguard::serialization {
namespace {

void collect(const ir::Graph& graph, std::vector<const ir::Tensor*>& into) {
  for (const auto& value : graph.initializers()) into.push_back(value->initializer());
  for (const ir::Node& node : graph) {
    for (const ir::Graph* nested : node.subgraphs()) collect(*nested, into);
  }
}

// A function's initializers become Constant nodes, whose tensors stay inline: they are not counted here.
std::vector<const ir::Tensor*> external_candidates(const ir::Model& model) {
  std::vector<const ir::Tensor*> tensors;
  collect(*model.graph, tensors);
  return tensors;
}

std::size_t distinct_bytes(const std::vector<const ir::Tensor*>& tensors) {
  std::set<std::string> seen;
  std::size_t bytes = 0;
  for (const ir::Tensor* tensor : tensors) {
    if (seen.insert(tensor->identity()).second) bytes += tensor->nbytes();
  }
  return bytes;
}

bool wants_external(const std::vector<const ir::Tensor*>& tensors, const SaveOptions& options) {
  if (options.external_data != ExternalData::kAuto) return options.external_data == ExternalData::kAlways;
  return distinct_bytes(tensors) > options.inline_limit;
}

}  // namespace

std::vector<const ir::Tensor*> initializers_of(const ir::Model& model) {
  std::vector<const ir::Tensor*> tensors = external_candidates(model);
  for (const ir::Function& function : model.functions) collect(*function.body, tensors);
  return tensors;
}

std::size_t inline_bytes(const ir::Model& model) {
  std::size_t bytes = 0;
  for (const ir::Tensor* tensor : initializers_of(model)) bytes += tensor->nbytes();
  return bytes;
}

DataLayout::DataLayout(const ir::Model& model, const SaveOptions& options, std::string location)
    : location_(std::move(location)) {
  const std::vector<const ir::Tensor*> tensors = external_candidates(model);
  if (!wants_external(tensors, options)) return;
  for (const ir::Tensor* tensor : tensors) {
    const bool is_dense = tensor->dtype() != DType::kString && tensor->nbytes() > 0;
    if (is_dense && tensor->nbytes() >= options.min_external_bytes) place(*tensor, options.alignment);
  }
}

void DataLayout::place(const ir::Tensor& tensor, std::size_t alignment) {
  const auto step = static_cast<std::int64_t>(alignment);
  const std::int64_t offset = (end_ + step - 1) / step * step;
  const Slot slot{offset, static_cast<std::int64_t>(tensor.nbytes())};
  if (!slots_.emplace(tensor.identity(), slot).second) return;
  tensors_.push_back({&tensor, slot});
  end_ = slot.offset + slot.bytes;
}

std::optional<DataLayout::Slot> DataLayout::find(const ir::Tensor& tensor) const {
  if (is_empty()) return std::nullopt;
  const auto found = slots_.find(tensor.identity());
  return found == slots_.end() ? std::nullopt : std::optional(found->second);
}

void DataLayout::write(OutputFile& file) const {
  for (const Placed& placed : tensors_) {
    std::int64_t offset = placed.slot.offset;
    placed.tensor->visit_bytes([&](const void* data, std::size_t bytes) {
      file.write(data, bytes, offset);
      offset += static_cast<std::int64_t>(bytes);
    });
  }
}

}  // namespace exportguard::serialization
