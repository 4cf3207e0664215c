#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "exportguard/ir/inference.h"

namespace exportguard::ir {
namespace {

/// Shape of numpy's matmul.
std::optional<Shape> multiplied(const InferenceContext& ctx, std::optional<Shape> a, std::optional<Shape> b) {
  if (!a || !b) return std::nullopt;
  if (a->empty() || b->empty()) ctx.fail("operands must have rank 1 or more");
  const bool is_row = a->size() == 1;
  const bool is_column = b->size() == 1;
  if (is_row) a->insert(a->begin(), Dim(1));
  if (is_column) b->push_back(Dim(1));
  const Dim& left = a->back();
  const Dim& right = (*b)[b->size() - 2];
  if (left.is_constant() && right.is_constant() && left != right) {
    ctx.fail(fmt::format("the inner sizes must be equal, got {} and {}", left.str(), right.str()));
  }
  Shape result = ctx.broadcast(Shape(a->begin(), a->end() - 2), Shape(b->begin(), b->end() - 2));
  if (!is_row) result.push_back((*a)[a->size() - 2]);
  if (!is_column) result.push_back(b->back());
  return result;
}

void infer_matmul(InferenceContext& ctx) { ctx.set(0, ctx.dtype(0), multiplied(ctx, ctx.shape(0), ctx.shape(1))); }

void infer_matmul_integer(InferenceContext& ctx) {
  ctx.set(0, DType::kInt32, multiplied(ctx, ctx.shape(0), ctx.shape(1)));
}

/// Operands are a, its scale and zero point, b and its two, and those of the result.
void infer_qlinear_matmul(InferenceContext& ctx) {
  ctx.set(0, ctx.dtype(7), multiplied(ctx, ctx.shape(0), ctx.shape(3)));
}

void swap_last(std::optional<Shape>& shape) {
  if (shape && shape->size() >= 2) std::swap((*shape)[shape->size() - 1], (*shape)[shape->size() - 2]);
}

void infer_fused_matmul(InferenceContext& ctx) {
  auto a = ctx.shape(0);
  auto b = ctx.shape(1);
  if (ctx.integer("transBatchA", 0) != 0 || ctx.integer("transBatchB", 0) != 0) {
    return ctx.set(0, ctx.dtype(0), std::nullopt);
  }
  if (ctx.integer("transA", 0) != 0) swap_last(a);
  if (ctx.integer("transB", 0) != 0) swap_last(b);
  ctx.set(0, ctx.dtype(0), multiplied(ctx, std::move(a), std::move(b)));
}

void infer_gemm(InferenceContext& ctx) {
  const auto a = ctx.shape(0);
  const auto b = ctx.shape(1);
  const auto side = [&](const std::optional<Shape>& shape, std::size_t at) {
    if (!shape) return ctx.fresh();
    if (shape->size() != 2) ctx.fail(fmt::format("operands must have rank 2, got {}", shape->size()));
    return (*shape)[at];
  };
  const bool turns_a = ctx.integer("transA", 0) != 0;
  const bool turns_b = ctx.integer("transB", 0) != 0;
  const Dim inner = side(a, turns_a ? 0 : 1);
  const Dim other = side(b, turns_b ? 1 : 0);
  if (inner.is_constant() && other.is_constant() && inner != other) {
    ctx.fail(fmt::format("the inner sizes must be equal, got {} and {}", inner.str(), other.str()));
  }
  ctx.set(0, ctx.dtype(0), Shape{side(a, turns_a ? 1 : 0), side(b, turns_b ? 0 : 1)});
}

void infer_determinant(InferenceContext& ctx) {
  auto shape = ctx.shape(0);
  if (shape && shape->size() < 2) ctx.fail(fmt::format("the operand must have rank 2 or more, got {}", shape->size()));
  if (shape) shape->resize(shape->size() - 2);
  ctx.set(0, ctx.dtype(0), std::move(shape));
}

// ------------------------------------------------------------------------------------------------ Einsum

struct Equation {
  std::vector<std::string> operands;
  std::optional<std::string> result;  ///< letters, and '.' once for the ellipsis
};

Equation parse_equation(std::string_view text) {
  Equation equation;
  std::string term;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) term += c;
    if (text.substr(i, 3) == "...") term += '.', i += 2;
    const bool is_arrow = text.substr(i, 2) == "->";
    if (c == ',' || is_arrow) equation.operands.push_back(std::exchange(term, {}));
    if (is_arrow) equation.result.emplace(), ++i;
  }
  (equation.result ? *equation.result : equation.operands.emplace_back()) = term;
  return equation;
}

/// Without an arrow: the ellipsis, then each letter that stands once, sorted.
std::string implicit_result(const Equation& equation) {
  std::map<char, int> counts;
  for (const std::string& term : equation.operands) {
    for (const char letter : term) ++counts[letter];
  }
  std::string result = counts.contains('.') ? "." : "";
  for (const auto& [letter, count] : counts) {
    if (letter != '.' && count == 1) result += letter;
  }
  return result;
}

struct EinsumSizes {
  std::map<char, Dim> letters;
  Shape ellipsis;
};

bool read_operand(const InferenceContext& ctx, const std::string& term, const Shape& shape, EinsumSizes& sizes) {
  const bool has_ellipsis = term.find('.') != std::string::npos;
  const std::size_t letters = term.size() - (has_ellipsis ? 1 : 0);
  if (shape.size() < letters || (!has_ellipsis && shape.size() != letters)) {
    ctx.fail(fmt::format("'{}' must have rank {}, got {}", term, letters, shape.size()));
  }

  std::size_t axis = 0;
  for (const char letter : term) {
    if (letter == '.') {
      const std::size_t end = axis + shape.size() - letters;
      sizes.ellipsis = ctx.broadcast(sizes.ellipsis, Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis),
                                                           shape.begin() + static_cast<std::ptrdiff_t>(end)));
      axis = end;
      continue;
    }
    const auto [entry, is_new] = sizes.letters.emplace(letter, shape[axis]);
    if (!is_new) entry->second = ctx.broadcast(entry->second, shape[axis]);
    ++axis;
  }
  return true;
}

void infer_einsum(InferenceContext& ctx) {
  const Equation equation = parse_equation(ctx.text("equation", ""));
  if (equation.operands.size() != ctx.input_count()) {
    ctx.fail(fmt::format("the equation has {} operands, got {}", equation.operands.size(), ctx.input_count()));
  }

  EinsumSizes sizes;
  for (std::size_t i = 0; i < ctx.input_count(); ++i) {
    const auto shape = ctx.shape(i);
    if (!shape) return ctx.set(0, ctx.dtype(0), std::nullopt);
    read_operand(ctx, equation.operands[i], *shape, sizes);
  }

  Shape result;
  for (const char letter : equation.result.value_or(implicit_result(equation))) {
    if (letter == '.') {
      result.insert(result.end(), sizes.ellipsis.begin(), sizes.ellipsis.end());
    } else if (const auto size = sizes.letters.find(letter); size != sizes.letters.end()) {
      result.push_back(size->second);
    } else {
      ctx.fail(fmt::format("'{}' of the result is in no operand", letter));
    }
  }
  ctx.set(0, ctx.dtype(0), std::move(result));
}

}  // namespace

void populate_matrices(InferenceTable& table) {
  table.add({"MatMul"}, infer_matmul);
  table.add({"MatMulInteger"}, infer_matmul_integer);
  table.add({"QLinearMatMul"}, infer_qlinear_matmul);
  table.add({"Gemm"}, infer_gemm);
  table.add({"Det"}, infer_determinant);
  table.add({"Einsum"}, infer_einsum);
  table.add_in("com.microsoft", {"FusedMatMul"}, infer_fused_matmul);
}

}  // namespace exportguard::ir
