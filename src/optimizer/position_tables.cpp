#include "optimizer/position_tables.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "exportguard/common/torch_dtypes.h"

namespace exportguard::optimizer {
namespace {

constexpr int kDeepest = 16;  // nodes one after the other

/// [rows, 1 or columns] of the positions 0, 1, …
using Rows = std::function<at::Tensor(std::int64_t rows)>;

struct Computed {
  Value* positions = nullptr;
  Rows rows;
};

bool are_positions(const Value* value) { return value && value->dtype() == DType::kInt64 && has_rank(*value, 2); }

/// Positions with a last axis for the columns.
std::optional<Computed> positions_below(const Facts& facts, const ir::Node& node) {
  const auto axes = facts.ints(node.find_input(1));
  const bool is_last = axes && axes->size() == 1 && (axes->front() == 2 || axes->front() == -1);
  if (!is_last || !are_positions(node.find_input(0))) return std::nullopt;
  return Computed{&node.input(0), [](std::int64_t rows) {
                    return at::arange(rows, at::TensorOptions().dtype(at::kLong)).unsqueeze(1);
                  }};
}

/// A number, or one for each column.
std::optional<at::Tensor> columns_of(const Facts& facts, const Value* value) {
  const ir::Tensor* tensor = facts.constant(value);
  const bool is_float = tensor && is_floating(tensor->dtype()) && bit_width(tensor->dtype()) >= 16;
  if (!is_float || tensor->shape().size() > 3) return std::nullopt;
  const std::int64_t last = tensor->shape().empty() ? 1 : tensor->shape().back();
  return tensor->numel() == last ? std::optional(tensor->aten().reshape({last})) : std::nullopt;
}

std::optional<Computed> computed(const Facts& facts, const Value* value, int depth);

std::optional<Computed> with_columns(const Facts& facts, const ir::Node& node, int depth) {
  for (const std::size_t side : {0, 1}) {
    const auto columns = columns_of(facts, node.find_input(side));
    if (!columns) continue;
    const auto from = computed(facts, node.find_input(1 - side), depth);
    if (!from) return std::nullopt;
    const bool is_product = node.op() == "Mul";
    return Computed{from->positions, [rows = from->rows, columns = *columns, is_product](std::int64_t count) {
                      return is_product ? rows(count) * columns : rows(count) + columns;
                    }};
  }
  return std::nullopt;
}

std::optional<Computed> elementwise(const Facts& facts, const ir::Node& node, int depth) {
  const auto from = computed(facts, node.find_input(0), depth);
  if (!from) return std::nullopt;
  const auto after = [&](auto&& function) {
    return Computed{from->positions,
                    [rows = from->rows, function](std::int64_t count) { return function(rows(count)); }};
  };
  if (node.op() == "Cos") return after([](const at::Tensor& x) { return x.cos(); });
  if (node.op() == "Sin") return after([](const at::Tensor& x) { return x.sin(); });
  const DType dtype = node.output().dtype();
  if (node.op() != "Cast" || !is_floating(dtype) || bit_width(dtype) < 16) return std::nullopt;
  return after([type = to_scalar_type(dtype)](const at::Tensor& x) { return x.to(type); });
}

std::optional<Computed> computed(const Facts& facts, const Value* value, int depth) {
  const ir::Node* node = value && depth < kDeepest ? value->producer() : nullptr;
  if (node == nullptr || !node->domain().empty()) return std::nullopt;
  if (node->op() == "Unsqueeze") return positions_below(facts, *node);
  if (!is_floating(value->dtype())) return std::nullopt;
  if (node->op() == "Mul" || node->op() == "Add") return with_columns(facts, *node, depth + 1);
  return elementwise(facts, *node, depth + 1);
}

}  // namespace

std::optional<RowsByPosition> rows_by_position(const Facts& facts, const Value& value) {
  if (const ir::Node* lookup = producer_of(&value, "Gather")) {
    const ir::Tensor* table = facts.constant(lookup->find_input(0));
    const bool is_of_rows = table && table->shape().size() == 2 && int_attribute(*lookup, "axis", 0) == 0;
    if (!is_of_rows || !are_positions(lookup->find_input(1))) return std::nullopt;
    return RowsByPosition{&lookup->input(1), &lookup->input(0), {}};
  }
  const auto found = computed(facts, &value, 0);
  const auto columns = dim(value, -1);
  if (!found || !has_rank(value, 3) || !columns || !columns->constant()) return std::nullopt;
  return RowsByPosition{found->positions, nullptr,
                        [rows = found->rows, width = *columns->constant()](std::int64_t count) {
                          const at::NoGradGuard no_grad;
                          return ir::Tensor(rows(count).expand({count, width}).contiguous());
                        }};
}

}  // namespace exportguard::optimizer
