#include "exportguard/optimizer/rewriter.h"

namespace exportguard::optimizer {
namespace {

/// x [..., n], if `value` is it as [rows, n].
Value* before_rows(const Value* value) {
  const ir::Node* rows = producer_of(value, "Reshape");
  if (!rows || !has_rank(*value, 2) || !shape_of(rows->input(0)) || shape_of(rows->input(0))->size() < 3)
    return nullptr;
  return dim(rows->input(0), -1) == dim(*value, 1) && dim(*value, 1)->is_constant() ? &rows->input(0) : nullptr;
}

/// A Gemm that is a product of rows with a matrix, plus a row.
bool is_plain(const ir::Node& gemm) {
  const bool has_plain_numbers = float_attribute(gemm, "alpha", 1) == 1 && float_attribute(gemm, "beta", 1) == 1;
  const Value* bias = gemm.find_input(2);
  return has_plain_numbers && int_attribute(gemm, "transA", 0) == 0 && has_one_use(gemm.output()) &&
         (bias == nullptr || has_rank(*bias, 1));
}

/// x [..., n] as rows through a Gemm, and back to [..., m].
Match match_rows(const Facts&, ir::Node& node) {
  const ir::Node* gemm = producer_of(node.find_input(0), "Gemm");
  if (!gemm || !is_plain(*gemm)) return Match::no("the operand is no plain Gemm that nothing else reads");
  Value* x = before_rows(gemm->find_input(0));
  if (x == nullptr || !shape_of(node.output())) return Match::no("the Gemm is not of rows of more axes");
  const auto columns = dim(gemm->output(), 1);
  if (!columns) return Match::no("the size of the rows is not known");
  ir::Shape wanted = *shape_of(*x);
  wanted.back() = *columns;
  if (*shape_of(node.output()) != wanted) return Match::no("the rows do not get their axes back");
  return Match([=, &node](Rewriter& rewriter) {
    Value* weight = &gemm->input(1);
    if (int_attribute(*gemm, "transB", 0) != 0) weight = &rewriter.transpose(*weight, {1, 0});
    Value* made = &rewriter.op("MatMul", {x, weight}, {}, node.output().type());
    if (gemm->find_input(2)) made = &rewriter.op("Add", {made, &gemm->input(2)}, {}, node.output().type());
    rewriter.replace(node.output(), *made);
  });
}

}  // namespace

void populate_linear(PatternTable& table) {
  table.add({.name = "gemm_of_rows",
             .matches = "`Gemm` of a tensor reshaped to rows, whose result gets the axes back",
             .makes = "`MatMul` and `Add` of the tensor",
             .roots = {"Reshape"},
             .match = match_rows,
             .stage = Stage::kFuse});
}

}  // namespace exportguard::optimizer
