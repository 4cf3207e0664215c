#include "lowering/contraction.h"

#include <algorithm>

#include "exportguard/common/torch_dtypes.h"
#include "lowering/kernels.h"
#include "lowering/reductions.h"
#include "lowering/size_arithmetic.h"

namespace exportguard::lowering {
namespace {

bool contains(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

std::int64_t axis_of(const Labelled& operand, char label) {
  return static_cast<std::int64_t>(operand.labels.find(label));
}

Size size_of_label(LoweringContext& ctx, const Labelled& operand, char label) {
  return size_of(ctx, operand.value, axis_of(operand, label));
}

bool is_one(LoweringContext& ctx, const Labelled& operand, char label) {
  return ctx.size(operand.value, axis_of(operand, label)).constant() == 1;
}

template <typename Predicate>
std::string labels_where(const std::string& labels, Predicate predicate) {
  std::string result;
  std::ranges::copy_if(labels, std::back_inserter(result), predicate);
  return result;
}

Labelled without(LoweringContext& ctx, const Labelled& operand, const std::string& dropped) {
  std::vector<std::int64_t> axes;
  for (const char label : dropped) axes.push_back(axis_of(operand, label));
  std::ranges::sort(axes);
  if (axes.empty()) return operand;
  return {sum(ctx, operand.value, {axes, false}),
          labels_where(operand.labels, [&](char label) { return !contains(dropped, label); })};
}

/// Drops the axes of `operand` that nobody else needs: those summed over, and those of size 1 that `other` has larger.
Labelled reduced(LoweringContext& ctx, const Labelled& operand, const Labelled& other, const std::string& kept) {
  return without(ctx, operand, labels_where(operand.labels, [&](char label) {
                   if (!contains(other.labels, label)) return !contains(kept, label);
                   return !contains(kept, label) && is_one(ctx, operand, label) && !is_one(ctx, other, label);
                 }));
}

/// The labels of a product of matrices: [batch, rows, inner] x [batch, inner, columns].
struct Roles {
  std::string batch;
  std::string rows;
  std::string columns;
  std::string inner;
};

Roles roles_of(const Labelled& a, const Labelled& b, const std::string& kept) {
  Roles roles;
  for (const char label : a.labels) {
    std::string& role = !contains(b.labels, label) ? roles.rows : contains(kept, label) ? roles.batch : roles.inner;
    role += label;
  }
  roles.columns = labels_where(b.labels, [&](char label) { return !contains(a.labels, label); });
  return roles;
}

/// [batch..., first..., second...] as [batch..., first, second]: groups of axes become one each.
Value* as_matrices(LoweringContext& ctx, const Labelled& operand, const std::string& batch, const std::string& first,
                   const std::string& second) {
  const Labelled ordered = arranged(ctx, operand, batch + first + second);
  if (first.size() == 1 && second.size() == 1) return ordered.value;
  const std::size_t begin = batch.size();
  const std::size_t middle = begin + first.size();
  std::vector<Size> sizes = ctx.sizes_of(ordered.value);
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(begin), sizes.end());
  sizes.push_back(merged_size(ctx, ordered.value, begin, middle));
  sizes.push_back(merged_size(ctx, ordered.value, middle, middle + second.size()));
  return ctx.reshape(ordered.value, sizes);
}

Labelled product_of_matrices(LoweringContext& ctx, const Labelled& a, const Labelled& b, const Roles& roles) {
  Value* product = matmul(ctx, as_matrices(ctx, a, roles.batch, roles.rows, roles.inner),
                          as_matrices(ctx, b, roles.batch, roles.inner, roles.columns));
  const std::string labels = roles.batch + roles.rows + roles.columns;
  if (roles.rows.size() == 1 && roles.columns.size() == 1) return {product, labels};
  std::vector<Size> sizes;
  for (const char label : roles.batch) sizes.push_back(size_of_label(ctx, is_one(ctx, a, label) ? b : a, label));
  for (const char label : roles.rows) sizes.push_back(size_of_label(ctx, a, label));
  for (const char label : roles.columns) sizes.push_back(size_of_label(ctx, b, label));
  return {ctx.reshape(product, sizes), labels};
}

/// Nothing is summed over: a product of elements, each operand with axes of size 1 for the other's labels. It is the
/// one step of a contraction that torch takes with operands of two dtypes.
Labelled product_of_elements(LoweringContext& ctx, const Labelled& a, const Labelled& b, const Roles& roles) {
  const std::string labels = roles.batch + roles.rows + roles.columns;
  const DType dtype = promote_types(a.value->dtype(), b.value->dtype());
  const auto spread = [&](const Labelled& operand) {
    const Labelled ordered =
        arranged(ctx, operand, labels_where(labels, [&](char l) { return contains(operand.labels, l); }));
    std::vector<std::int64_t> missing;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (!contains(operand.labels, labels[i])) missing.push_back(static_cast<std::int64_t>(i));
    }
    return ctx.unsqueeze(ctx.cast(ordered.value, dtype), missing);
  };
  return {same_dtype_op(ctx, "Mul", {spread(a), spread(b)}), labels};
}

/// A vector as a row in front of matrices: one for each, as some runtimes broadcast none to a batch without a matrix.
Value* row_for_each(LoweringContext& ctx, Value* vector, Value* matrices) {
  Value* row = ctx.unsqueeze(vector, {0});
  std::vector<Size> sizes = ctx.sizes_of(matrices);
  const bool is_known = std::all_of(sizes.begin(), sizes.end() - 2, [](const Size& size) { return size.number(); });
  if (is_known) return row;
  sizes.end()[-2] = 1;
  sizes.back() = size_of(ctx, row, 1);
  return ctx.expand(row, sizes);
}

}  // namespace

Value* matmul(LoweringContext& ctx, Value* a, Value* b) {
  if (!departs(ctx, Departure::kVectorOfTransposed)) return same_dtype_op(ctx, "MatMul", {a, b});
  // A matrix of one column is multiplied right.
  const auto a_rank = a->type().rank();
  const auto b_rank = b->type().rank();
  const bool is_column = b_rank == 1 && a_rank && *a_rank > 1;
  const bool is_row = a_rank == 1 && b_rank && *b_rank > 1;
  if (is_column) return ctx.squeeze(same_dtype_op(ctx, "MatMul", {a, ctx.unsqueeze(b, {1})}), {-1});
  if (is_row) return ctx.squeeze(same_dtype_op(ctx, "MatMul", {row_for_each(ctx, a, b), b}), {-2});
  return same_dtype_op(ctx, "MatMul", {a, b});
}

Value* times_factor(LoweringContext& ctx, Value* value, double factor) {
  return factor == 1 ? value : same_dtype_op(ctx, "Mul", {value, ctx.number_like(factor, value)});
}

Labelled arranged(LoweringContext& ctx, const Labelled& operand, const std::string& labels) {
  const Labelled rest =
      without(ctx, operand, labels_where(operand.labels, [&](char l) { return !contains(labels, l); }));
  std::vector<std::int64_t> permutation;
  for (const char label : labels) permutation.push_back(axis_of(rest, label));
  return {ctx.transpose(rest.value, permutation), labels};
}

Labelled contract(LoweringContext& ctx, Labelled a, Labelled b, const std::string& kept) {
  a = reduced(ctx, a, b, kept);
  b = reduced(ctx, b, a, kept);
  a = reduced(ctx, a, b, kept);  // what b has dropped is a's alone now
  const Roles roles = roles_of(a, b, kept);
  return roles.inner.empty() ? product_of_elements(ctx, a, b, roles) : product_of_matrices(ctx, a, b, roles);
}

}  // namespace exportguard::lowering
