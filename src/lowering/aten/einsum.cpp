#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "exportguard/lowering/context.h"
#include "exportguard/lowering/table.h"
#include "lowering/contraction.h"
#include "lowering/kernels.h"

namespace exportguard::lowering {
namespace {

/// "ij,jk->ik" with a letter for every axis: those that `...` stands for get letters that the equation does not use.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kEllipsis = "...";

std::string without_spaces(std::string_view text) {
  std::string result(text);
  std::erase(result, ' ');
  return result;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char character : text) {
    if (character == separator) {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

std::size_t letters_in(const std::string& term) {
  return static_cast<std::size_t>(std::ranges::count_if(term, [](char c) { return c != '.'; }));
}

/// Letters for the axes of the longest `...`; a shorter one has the last of them.
std::string broadcast_letters(LoweringContext& ctx, const std::vector<std::string>& terms,
                              const std::vector<Value*>& values, const std::string& equation) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool has_ellipsis = terms[i].find(kEllipsis) != std::string::npos;
    const std::size_t rank = ctx.rank(values[i]);
    const std::size_t named = letters_in(terms[i]);
    ctx.require(has_ellipsis ? named <= rank : named == rank,
                "the term " + terms[i] + " does not fit a tensor of rank " + std::to_string(rank));
    if (has_ellipsis) count = std::max(count, rank - named);
  }
  std::string letters;
  for (const char letter : kLetters) {
    if (letters.size() < count && equation.find(letter) == std::string::npos) letters += letter;
  }
  ctx.require(letters.size() == count, "the equation has more axes than there are letters");
  return letters;
}

std::string expanded(const std::string& term, std::string_view letters) {
  const std::size_t position = term.find(kEllipsis);
  if (position == std::string::npos) return term;
  return term.substr(0, position) + std::string(letters) + term.substr(position + kEllipsis.size());
}

/// Without "->", the result has the broadcast axes and then every letter that stands once, sorted as characters.
std::string implicit_result(const std::vector<std::string>& terms, const std::string& broadcast) {
  std::string once;
  std::string all;
  for (const std::string& term : terms) all += term;
  for (const char letter : all) {
    if (letter != '.' && std::ranges::count(all, letter) == 1) once += letter;
  }
  std::ranges::sort(once);
  return broadcast + once;
}

Equation parse(LoweringContext& ctx, const std::string& text, const std::vector<Value*>& values) {
  const std::size_t arrow = text.find("->");
  const std::vector<std::string> terms = split(text.substr(0, arrow), ',');
  ctx.require(terms.size() == values.size(), "the equation " + text + " has " + std::to_string(terms.size()) +
                                                 " terms for " + std::to_string(values.size()) + " tensors");
  const std::string broadcast = broadcast_letters(ctx, terms, values, text);
  Equation equation;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::size_t own = ctx.rank(values[i]) - letters_in(terms[i]);
    const bool has_ellipsis = terms[i].find(kEllipsis) != std::string::npos;
    equation.operands.push_back(
        has_ellipsis ? expanded(terms[i], std::string_view(broadcast).substr(broadcast.size() - own)) : terms[i]);
  }
  equation.result =
      arrow == std::string::npos ? implicit_result(terms, broadcast) : expanded(text.substr(arrow + 2), broadcast);
  return equation;
}

/// A letter that stands twice in one term takes the diagonal: ONNX Einsum does that, with lower-case letters.
Labelled with_diagonals(LoweringContext& ctx, Value* value, const std::string& labels) {
  std::string distinct;
  std::string from;
  for (const char label : labels) {
    if (distinct.find(label) == std::string::npos) distinct += label;
    from += static_cast<char>('a' + distinct.find(label));
  }
  if (distinct.size() == labels.size()) return {value, labels};
  std::string to;
  for (std::size_t i = 0; i < distinct.size(); ++i) to += static_cast<char>('a' + i);
  return {same_dtype_op(ctx, "Einsum", {value}, {{"equation", from + "->" + to}}), distinct};
}

/// Every letter that the result or an operand after the first `done` needs.
std::string needed_letters(const Equation& equation, std::size_t done) {
  std::string letters = equation.result;
  for (std::size_t i = done; i < equation.operands.size(); ++i) letters += equation.operands[i];
  return letters;
}

/// Two operands at a time from the left, each step one MatMul, which has kernels for more dtypes than Einsum, and
/// faster ones.
void lower_einsum(LoweringContext& ctx) {
  std::vector<Value*> values = ctx.inputs(1);
  if (values.size() > 1) {  // of several dtypes, which torch takes where it multiplies by elements
    for (Value*& value : values) value = ctx.cast(value, ctx.output_dtype());
  }
  const Equation equation = parse(ctx, without_spaces(ctx.text(0)), values);
  Labelled product = with_diagonals(ctx, values.front(), equation.operands.front());
  for (std::size_t i = 1; i < values.size(); ++i) {
    product =
        contract(ctx, product, with_diagonals(ctx, values[i], equation.operands[i]), needed_letters(equation, i + 1));
  }
  ctx.result(arranged(ctx, product, equation.result).value);
}

}  // namespace

void populate_einsum(LoweringTable& table) { table.add("aten.einsum.default", lower_einsum); }

}  // namespace exportguard::lowering
