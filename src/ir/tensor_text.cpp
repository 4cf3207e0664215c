#include "ir/tensor_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <complex>
#include <limits>
#include <vector>

#include "exportguard/common/sizes.h"
#include "exportguard/common/torch_dtypes.h"
#include "ir/literals.h"

namespace exportguard::ir {
namespace {

using Complex = c10::complex<double>;

// ------------------------------------------------------------------------------------------------ writing

std::vector<std::string> complex_texts(const Tensor& tensor) {
  const at::Tensor dense =
      tensor.aten().detach().cpu().resolve_conj().resolve_neg().to(at::kComplexDouble).contiguous();
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    const Complex number = dense.const_data_ptr<Complex>()[i];
    texts.push_back(fmt::format("complex({}, {})", float_text(number.real()), float_text(number.imag())));
  }
  return texts;
}

std::vector<std::string> integer_texts(const Tensor& tensor) {
  std::vector<std::string> texts;
  for (const std::int64_t number : tensor.to_ints()) {
    texts.push_back(tensor.dtype() == DType::kBool ? (number != 0 ? "true" : "false") : std::to_string(number));
  }
  return texts;
}

std::vector<std::string> float_texts(const Tensor& tensor) {
  std::vector<std::string> texts;
  for (const double number : tensor.to_doubles()) {
    const bool is_double = tensor.dtype() == DType::kFloat64;
    texts.push_back(is_double ? float_text(number) : float_text(static_cast<float>(number)));
  }
  return texts;
}

std::vector<std::string> string_texts(const Tensor& tensor) {
  std::vector<std::string> texts;
  for (const std::string& text : tensor.strings()) texts.push_back(ir::quoted(text));
  return texts;
}

std::vector<std::string> element_texts(const Tensor& tensor) {
  if (tensor.dtype() == DType::kString) return string_texts(tensor);
  if (is_complex(tensor.dtype())) return complex_texts(tensor);
  return is_floating(tensor.dtype()) ? float_texts(tensor) : integer_texts(tensor);
}

// ------------------------------------------------------------------------------------------------ reading

std::vector<std::int64_t> parse_sizes(const Lexer& in, const Type& type) {
  const bool is_tensor = type.kind == Type::Kind::kTensor && type.shape && type.dtype != DType::kUndefined;
  if (!is_tensor) in.fail(fmt::format("a constant must be a tensor with a dtype and sizes, got {}", type.str()));
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : *type.shape) {
    const auto size = dim.constant();
    if (!size || *size < 0) in.fail(fmt::format("the sizes of a constant must be numbers, got {}", type.str()));
    sizes.push_back(*size);
  }
  return sizes;
}

template <typename T>
std::vector<T> parse_list(Lexer& in, T (*parse)(Lexer&, const Type&), const Type& type) {
  std::vector<T> elements;
  if (in.accept('}')) return elements;
  do {
    elements.push_back(parse(in, type));
  } while (in.accept(','));
  in.expect('}', "',' or '}' behind an element");
  return elements;
}

std::int64_t parse_integer(Lexer& in, const Type& type) {
  if (type.dtype == DType::kBool && in.token().kind == Token::Kind::kName) {
    const bool flag = in.token().text == "true";
    if (!flag && in.token().text != "false") in.fail_expected("true or false");
    in.advance();
    return flag ? 1 : 0;
  }
  const std::int64_t number = in.token().integer;
  if (in.token().kind != Token::Kind::kInteger) in.fail_expected(fmt::format("an integer for {}", type.str()));
  const int bits = type.dtype == DType::kBool ? 1 : bit_width(type.dtype);
  const bool is_signed = !is_unsigned(type.dtype) && type.dtype != DType::kBool;
  const std::int64_t top =
      bits == 64 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  const std::int64_t bottom = is_signed || bits == 64 ? -top - 1 : 0;
  if (number < bottom || number > top) in.fail(fmt::format("{} is out of range for {}", number, name(type.dtype)));
  in.advance();
  return number;
}

double parse_float(Lexer& in, const Type&) { return in.take_number("a number"); }

Complex parse_complex(Lexer& in, const Type&) {
  const std::complex<double> number = in.take_complex();
  return {number.real(), number.imag()};
}

std::string parse_string(Lexer& in, const Type&) { return in.take_string("a string"); }

void require_count(const Lexer& in, std::size_t count, const Type& type) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : *type.shape) sizes.push_back(dim.constant().value_or(0));
  const auto expected = element_count(sizes);
  if (!expected) in.fail(fmt::format("{} has more elements than can be counted", type.str()));
  if (static_cast<std::int64_t>(count) != *expected)
    in.fail(fmt::format("expected {} elements for {}, got {}", *expected, type.str(), count));
}

/// torch has no kernels that convert to types of two and four bits; their elements are bytes of an 8-bit integer.
at::Tensor converted(const at::Tensor& tensor, DType dtype) {
  if (bit_width(dtype) < 8) return tensor.to(is_unsigned(dtype) ? at::kByte : at::kChar);
  return tensor.to(to_scalar_type(dtype));
}

template <typename T>
Tensor parse_numbers(Lexer& in, const Type& type, T (*parse)(Lexer&, const Type&)) {
  const std::vector<std::int64_t> sizes = parse_sizes(in, type);
  const std::vector<T> elements = parse_list(in, parse, type);
  require_count(in, elements.size(), type);
  const at::Tensor tensor = at::tensor(at::ArrayRef<T>(elements), at::TensorOptions(at::CppTypeToScalarType<T>::value));
  return Tensor::stored_as(type.dtype, converted(tensor.reshape(sizes), type.dtype));
}

Tensor parse_strings(Lexer& in, const Type& type) {
  std::vector<std::int64_t> sizes = parse_sizes(in, type);
  std::vector<std::string> elements = parse_list(in, parse_string, type);
  require_count(in, elements.size(), type);
  return Tensor::strings(std::move(elements), std::move(sizes));
}

}  // namespace

std::string elements_text(const Tensor& tensor, std::size_t max_elements) {
  const bool is_packed_float = tensor.dtype() == DType::kFloat4E2M1;  // torch cannot read its elements
  if (is_packed_float || tensor.numel() > static_cast<std::int64_t>(max_elements)) return "{...}";
  return fmt::format("{{{}}}", fmt::join(element_texts(tensor), ", "));
}

Tensor parse_elements(Lexer& in, const Type& type) {
  in.expect('{', "'{' and the elements of the constant");
  if (in.token().kind == Token::Kind::kEllipsis) {
    in.fail("the elements of this constant were left out; print with a larger max_elements");
  }
  if (type.dtype == DType::kString) return parse_strings(in, type);
  if (is_complex(type.dtype)) return parse_numbers(in, type, parse_complex);
  return is_floating(type.dtype) ? parse_numbers(in, type, parse_float) : parse_numbers(in, type, parse_integer);
}

}  // namespace exportguard::ir
