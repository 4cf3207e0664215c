#include "python/fx_memory.h"

#include <exportguard/importer/functionalize.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "python/fx_objects.h"

namespace exportguard::python {
namespace {

const at::Tensor* tensor_of(py::handle example) {
  return example && THPVariable_Check(example.ptr()) ? &THPVariable_Unpack(example.ptr()) : nullptr;
}

using Storage = const c10::StorageImpl*;

void add_storages(py::handle example, std::vector<Storage>& storages) {
  if (!example) return;
  if (is_sequence(example)) {
    for (Py_ssize_t i = 0; i < sequence_size(example); ++i) add_storages(sequence_item(example, i), storages);
  } else if (const at::Tensor* tensor = tensor_of(example); tensor != nullptr && tensor->has_storage()) {
    storages.push_back(tensor->storage().unsafeGetStorageImpl());
  }
}

/// Those of an argument: a node, or a list of nodes.
void add_argument_storages(py::handle argument, std::vector<Storage>& storages) {
  if (is_sequence(argument)) {
    for (Py_ssize_t i = 0; i < sequence_size(argument); ++i)
      add_argument_storages(sequence_item(argument, i), storages);
  } else if (py::isinstance(argument, FxClasses::get().node)) {
    add_storages(example_of(argument), storages);
  }
}

std::vector<Storage> storages_of_result(py::handle node) {
  std::vector<Storage> storages;
  add_storages(example_of(node), storages);
  return storages;
}

/// The position of the argument that a result shares its memory with, as the storages say.
std::optional<std::int64_t> shared_argument(py::handle node) {
  const FxNames& names = FxNames::get();

  // The example values of a replayed block are those of another one.
  if (const py::handle recorded = find_item(attribute(node, names.meta), names.block_shares)) {
    const auto position = recorded.cast<std::int64_t>();
    return position < 0 ? std::nullopt : std::optional(position);
  }
  const std::vector<Storage> results = storages_of_result(node);
  const py::object args = attribute(node, names.args);
  for (Py_ssize_t i = 0; i < sequence_size(args) && !results.empty(); ++i) {
    std::vector<Storage> storages;
    add_argument_storages(sequence_item(args, i), storages);
    if (std::ranges::find_first_of(results, storages) != results.end()) return i;
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------------------ the stride rule

/// How a tensor lies in memory.
struct Layout {
  std::vector<SymExpr> sizes;
  std::vector<SymExpr> strides;
};

Layout layout_of(const at::Tensor& tensor, FxTypes& types) {
  Layout layout;
  const c10::SymIntArrayRef sizes = tensor.sym_sizes();
  const c10::SymIntArrayRef strides = tensor.sym_strides();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    layout.sizes.push_back(types.expression(sizes[i]));
    layout.strides.push_back(types.expression(strides[i]));
  }
  return layout;
}

/// Numbers of elements of the groups of axes, last first, that lie in memory like one axis each: the stride of an axis
/// is that of the next one times its size. An axis of one element belongs to any group.
std::vector<SymExpr> chained_groups(const Layout& layout) {
  std::vector<SymExpr> groups;
  SymExpr next;  // the stride that continues the last group
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    if (layout.sizes[i] == SymExpr(1)) continue;
    if (groups.empty() || !(layout.strides[i] == next)) groups.emplace_back(1);
    groups.back() = groups.back() * layout.sizes[i];
    next = layout.strides[i] * layout.sizes[i];
  }
  return groups;
}

/// torch's rule: a reshape is a view if each group of axes that are chained in memory becomes whole new axes.
bool is_view_at_all_sizes(const Layout& before, const std::vector<SymExpr>& sizes) {
  std::size_t axis = sizes.size();
  for (const SymExpr& group : chained_groups(before)) {
    SymExpr covered = 1;
    while (axis > 0 && !(covered == group)) covered = covered * sizes[--axis];
    if (!(covered == group)) return false;
  }
  return std::all_of(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(axis),
                     [](const SymExpr& size) { return size == SymExpr(1); });
}

/// Whether the sizes decide how the tensor lies in memory: an axis that shrinks to one element joins any group.
bool depends_on_sizes(const Layout& before) {
  return std::ranges::any_of(before.sizes, [](const SymExpr& size) { return !size.is_constant(); });
}

/// The last axis has the stride 1, and every other one follows from the next.
bool is_contiguous_at_all_sizes(const Layout& layout) {
  SymExpr next = 1;
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    if (layout.sizes[i] == SymExpr(1)) continue;
    if (!(layout.strides[i] == next)) return false;
    next = next * layout.sizes[i];
  }
  return true;
}

std::string_view base_name(const FxOperator& op) { return std::string_view(op.op).substr(0, op.op.find('.')); }

bool changes_shape_alone(const FxOperator& op) {
  static const std::set<std::string_view> names = {"flatten", "ravel", "reshape", "reshape_as", "contiguous"};
  return names.contains(base_name(op));
}

/// What sizes and strides tell of an operator that changes the shape alone. The storages tell of the traced sizes only.
std::optional<std::int64_t> stride_mark(py::handle node, const FxOperator& op, FxTypes& types) {
  const py::object args = attribute(node, FxNames::get().args);
  const at::Tensor* before = sequence_size(args) > 0 ? tensor_of(example_of(sequence_item(args, 0))) : nullptr;
  const at::Tensor* after = tensor_of(example_of(node));
  if (before == nullptr || after == nullptr) return std::nullopt;
  const Layout layout = layout_of(*before, types);
  const bool needs_contiguous = base_name(op) == "contiguous" || base_name(op) == "ravel";  // contiguous().view(-1)
  const bool is_view = needs_contiguous ? is_contiguous_at_all_sizes(layout)
                                        : is_view_at_all_sizes(layout, layout_of(*after, types).sizes);
  if (is_view) return 0;
  return depends_on_sizes(layout) ? importer::kDependsOnSizes : importer::kOwns;
}

}  // namespace

at::Tensor alike_in_own_memory(const at::Tensor& model, std::optional<at::ScalarType> type) {
  auto copy = model.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true);
  const caffe2::TypeMeta made = type ? c10::scalarTypeToTypeMeta(*type) : copy->dtype();
  const c10::SymInt bytes = type ? model.sym_numel() * made.itemsize() : model.storage().sym_nbytes();
  const c10::Storage memory(c10::Storage::use_byte_size_t(), bytes, c10::GetAllocator(c10::kMeta), /*resizable=*/true);
  copy->set_storage_and_dtype(memory, made);
  return at::Tensor(std::move(copy));
}

at::Tensor seen_as(const at::Tensor& model, const std::vector<c10::SymInt>& sizes,
                   const std::vector<c10::SymInt>& strides, const c10::SymInt& offset) {
  auto seen = model.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true);
  seen->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(seen));
}

py::handle example_of(py::handle node) {
  const FxNames& names = FxNames::get();
  const py::object meta = attribute(node, names.meta);
  return find_item(meta, names.val);  // the node keeps its meta alive
}

void FxMemory::note(py::handle node, const FxOperator& op, ir::Node& made) {
  if (op.may_copy) noted_.push_back({node, &op, &made});
  const bool has_storages = op.is_view && storages_tell_ && !storages_of_result(node).empty();
  if (has_storages) storages_tell_ = shared_argument(node).has_value();
}

void FxMemory::mark(FxTypes& types) const {
  for (const auto& [node, op, made] : noted_) {
    const auto mark = changes_shape_alone(*op) ? stride_mark(node, *op, types) : storage_mark(node);
    if (mark) made->set_attribute("shares", *mark);
  }
}

std::optional<std::int64_t> FxMemory::storage_mark(py::handle node) const {
  if (const auto shared = shared_argument(node)) return shared;
  return storages_tell_ ? std::optional(importer::kOwns) : std::nullopt;
}

}  // namespace exportguard::python
