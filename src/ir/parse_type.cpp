#include "ir/parse_type.h"

#include <fmt/format.h>

#include "exportguard/common/errors.h"

namespace exportguard::ir {
namespace {

/// `text` is a part of what the lexer reads, so that a fault has its place there.
SymExpr parse_expression(const Lexer& in, std::string_view text) {
  try {
    return SymExpr::parse(text);
  } catch (const ParseError& error) {
    const std::string what = error.what();
    in.fail_at(in.offset_of(text) + error.column() - 1, what.substr(what.find(": ") + 2));
  }
}

/// Splits at the commas that are in no call: `a,Max(b, c)` are two.
std::vector<std::string_view> split_sizes(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += (text[i] == '(') - (text[i] == ')');
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::optional<Shape> parse_shape(Lexer& in) {
  if (!in.is('[')) in.fail_expected("'[' and sizes behind a dtype");
  const std::string_view text = in.take_raw(']');
  const bool is_blank = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  std::optional<Shape> shape = Shape();
  if (text == "*") {
    shape.reset();
  } else if (!is_blank) {
    for (const std::string_view size : split_sizes(text)) shape->push_back(parse_expression(in, size));
  }
  in.advance();
  return shape;
}

Type parse_scalar(Lexer& in, DType dtype) {
  Type type = Type::scalar(dtype);
  if (!in.is('{')) return type;
  type.value = parse_expression(in, in.take_raw('}'));
  in.advance();
  return type;
}

constexpr int kMaxDepth = 200;

Type parse_any(Lexer& in, int depth);

Type parse_container(Lexer& in, Type::Kind kind, int depth) {
  if (depth >= kMaxDepth) in.fail(fmt::format("types are nested more than {} deep", kMaxDepth));
  in.expect('(', "'(' and the type of the elements");
  Type type = parse_any(in, depth + 1);
  const bool is_sequence = kind == Type::Kind::kOptional && type.kind == Type::Kind::kSequence;
  if (is_sequence) kind = Type::Kind::kOptionalSequence;
  if ((type.kind != Type::Kind::kTensor && !is_sequence) || type.is_scalar)
    in.fail("the elements must be tensors, got " + type.str());
  in.expect(')', "')' behind the type of the elements");
  type.kind = kind;
  return type;
}

/// `scalar(f16)`: a scalar whose dtype is none of Python's.
Type parse_other_scalar(Lexer& in) {
  in.expect('(', "'(' and a dtype behind scalar");
  const DType dtype = parse_dtype(in);
  in.expect(')', "')' behind the dtype of a scalar");
  return parse_scalar(in, dtype);
}

}  // namespace

DType parse_dtype(Lexer& in) {
  const auto dtype = in.token().kind == Token::Kind::kName ? find_dtype(in.token().text) : std::nullopt;
  if (!dtype) in.fail_expected("a dtype such as f32 or i64");
  in.advance();
  return *dtype;
}

namespace {

Type parse_any(Lexer& in, int depth) {
  if (in.accept_word("seq")) return parse_container(in, Type::Kind::kSequence, depth);
  if (in.accept_word("optional")) return parse_container(in, Type::Kind::kOptional, depth);
  if (in.accept_word("scalar")) return parse_other_scalar(in);
  if (in.accept_word("int")) return parse_scalar(in, DType::kInt64);
  if (in.accept_word("float")) return parse_scalar(in, DType::kFloat32);
  const DType dtype = parse_dtype(in);
  const bool is_scalar = dtype == DType::kBool && !in.is('[');  // `bool` alone, `bool[2]` is a tensor
  return is_scalar ? parse_scalar(in, dtype) : Type::tensor(dtype, parse_shape(in));
}

}  // namespace

Type parse_type(Lexer& in) { return parse_any(in, 0); }

}  // namespace exportguard::ir
