// Cast, CastLike, BitCast.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "evaluator/call.h"
#include "evaluator/conversion.h"
#include "evaluator/elements.h"
#include "evaluator/table.h"

namespace exportguard::evaluator {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- strings

std::string text_of(float number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "INF" : "-INF";
  return fmt::format("{}", number);
}

std::string text_of(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "INF" : "-INF";
  return fmt::format("{}", number);
}

template <typename T, typename Format>
Tensor as_texts(const Call& call, const Tensor& numbers, Format format) {
  const Tensor dense = numbers.cpu().contiguous();
  const Tensor result = at::empty(dense.sizes(), at::kLong);
  const T* from = dense.const_data_ptr<T>();
  auto* to = result.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) to[i] = call.strings().number(format(from[i]));
  return result.to(call.device());
}

Datum to_strings(const Call& call, const Datum& datum) {
  const Tensor numbers = widened(raised(readable(datum)));
  const auto format = [](auto number) { return text_of(number); };
  if (numbers.scalar_type() == at::kDouble) return Datum::of(as_texts<double>(call, numbers, format), DType::kString);
  if (at::isFloatingType(numbers.scalar_type())) {
    return Datum::of(as_texts<float>(call, numbers.to(at::kFloat), format), DType::kString);
  }
  const auto whole = [&](std::int64_t number) {
    return datum.dtype == DType::kUint64 ? fmt::format("{}", static_cast<std::uint64_t>(number))
                                         : fmt::format("{}", number);
  };
  return Datum::of(as_texts<std::int64_t>(call, numbers.to(at::kLong), whole), DType::kString);
}

// As C reads it: INF, NaN and exponents in any case.
double number_in(const Call& call, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') call.fail(fmt::format("'{}' is not a number", text));
  return number;
}

std::int64_t integer_in(const Call& call, const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return static_cast<std::int64_t>(number_in(call, text));
}

Datum from_strings(const Call& call, const Datum& datum, DType to) {
  const Tensor numbers = datum.tensor.cpu().contiguous();
  const auto* from = numbers.const_data_ptr<std::int64_t>();
  const bool is_whole = is_integral(to) || to == DType::kBool;
  const Tensor result = at::empty(numbers.sizes(), is_whole ? at::kLong : at::kDouble);
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const std::string& text = call.strings().text(from[i]);
    if (is_whole) {
      result.mutable_data_ptr<std::int64_t>()[i] = integer_in(call, text);
    } else {
      result.mutable_data_ptr<double>()[i] = number_in(call, text);
    }
  }
  const Datum read = Datum::of(result.to(call.device()), is_whole ? DType::kInt64 : DType::kFloat64);
  return converted(read, to);
}

// ---------------------------------------------------------------- operators

void cast(Call& call, DType to) {
  const Datum& datum = call.datum(0);
  call.require(datum.is_tensor(), "its input must be a tensor");
  if (datum.dtype == to) return call.result(datum);
  if (to == DType::kString) return call.result(to_strings(call, datum));
  if (datum.dtype == DType::kString) return call.result(from_strings(call, datum, to));
  call.result(converted(datum, to, {call.flag("saturate", true), call.text("round_mode", "up")}));
}

DType dtype_numbered(const Call& call, std::int64_t number) {
  call.require(number > 0 && number <= static_cast<std::int64_t>(DType::kInt2), "there is no such dtype");
  return static_cast<DType>(number);
}

void run_cast(Call& call) { cast(call, dtype_numbered(call, call.integer("to"))); }
void run_cast_like(Call& call) { cast(call, call.dtype(1)); }

void run_bit_cast(Call& call) {
  const DType to = dtype_numbered(call, call.integer("to"));
  call.require(bit_width(to) == bit_width(call.dtype(0)) && bit_width(to) > 0, "both dtypes must be of one width");
  const Tensor& x = call.input(0);
  call.result(bit_width(to) < 8 ? x.bitwise_and((1 << bit_width(to)) - 1).to(storage_of(to)) : x.view(storage_of(to)),
              to);
}

}  // namespace

void populate_casting(OperatorTable& table) {
  table.add("Cast", run_cast);
  table.add("CastLike", run_cast_like);
  table.add("BitCast", run_bit_cast);
}

}  // namespace exportguard::evaluator
