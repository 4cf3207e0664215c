#include "validation/judgement.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"

namespace exportguard::validation {
namespace {

using evaluator::Value;
using ir::Tensor;
using Sizes = std::vector<std::int64_t>;

std::string text_of(const Tensor& tensor) {
  return fmt::format("{}[{}]", name(tensor.dtype()), fmt::join(tensor.shape(), ","));
}

std::string text_of(const Value& value) {
  if (value.is_none()) return "nothing";
  if (const auto* items = value.find_sequence()) return fmt::format("a sequence of {}", items->size());
  return text_of(value.tensor());
}

Sizes without_ones(const Sizes& sizes) {
  Sizes kept;
  for (const std::int64_t size : sizes) {
    if (size != 1) kept.push_back(size);
  }
  return kept;
}

bool has_numbers(const Tensor& tensor) { return tensor.dtype() != DType::kString; }

/// Whether the comparison has a kernel for elements of that dtype.
bool is_comparable(DType dtype) { return bit_width(dtype) >= 8 || dtype == DType::kBool; }

/// Four-bit integers and the like are stored one to a byte.
at::Tensor stored(const Tensor& tensor) {
  const at::Tensor& elements = tensor.aten();
  return is_comparable(tensor.dtype()) ? elements : elements.to(at::kInt);
}

/// `expected` as the dtype of `got`, where a lowering may have changed it: between floats, and between integers.
std::optional<Tensor> in_dtype_of(const Tensor& expected, const Tensor& got) {
  if (expected.dtype() == got.dtype()) return expected;
  if (is_floating(expected.dtype()) && is_floating(got.dtype())) return expected;  // compared as they are
  const bool both_whole = !is_floating(expected.dtype()) && !is_floating(got.dtype()) &&
                          !is_complex(expected.dtype()) && !is_complex(got.dtype());
  if (both_whole && is_comparable(got.dtype())) return Tensor(expected.aten().to(to_scalar_type(got.dtype())));
  return std::nullopt;
}

std::optional<Tensor> in_shape_of(const Tensor& expected, const Tensor& got) {
  if (expected.shape() == got.shape()) return expected;
  if (without_ones(expected.shape()) != without_ones(got.shape())) return std::nullopt;
  return Tensor(expected.aten().reshape(got.shape()));
}

std::optional<Tensor> in_form_of(const Tensor& expected, const Tensor& got) {
  if (!has_numbers(expected) || !has_numbers(got)) {
    return expected.dtype() == got.dtype() && expected.shape() == got.shape() ? std::optional(expected) : std::nullopt;
  }
  const bool as_pairs = is_complex(expected.dtype()) && !is_complex(got.dtype());
  const Tensor numbers = as_pairs ? Tensor(at::view_as_real(expected.aten().resolve_conj())) : expected;
  const auto typed = in_dtype_of(numbers, got);
  return typed ? in_shape_of(*typed, got) : std::nullopt;
}

Tolerance coarser(DType a, DType b) {
  const Tolerance one = tolerance_for(a);
  const Tolerance other = tolerance_for(b);
  return one.relative >= other.relative ? one : other;
}

/// What values of a normal distribution deviate by, told by the least tenth of them: a mask makes most of the others
/// -1e9.
double usual_size(const Tensor& tensor) {
  const at::Tensor sizes = tensor.aten().to(at::kDouble).abs().flatten();
  const at::Tensor kept = sizes.masked_select(sizes.isfinite().logical_and(sizes > 0));
  if (kept.numel() == 0) return 0.0;
  constexpr double kTenth = 0.1257;  // of |x| with deviation 1
  return std::get<0>(kept.kthvalue((kept.numel() + 9) / 10)).item<double>() / kTenth;
}

Comparison compared(const Tensor& expected, const Tensor& got, Tolerance tolerance) {
  return compare(Tensor(stored(expected)), Tensor(stored(got)), tolerance);
}

Finding judge_tensors(const Tensor& expected, const Tensor& got, Likeness likeness,
                      const std::optional<Tolerance>& tolerance) {
  Finding finding;
  if (!has_numbers(expected)) {
    if (expected.strings() != got.strings()) finding.structural = "other strings";
    return finding;
  }
  finding.tolerance = tolerance.value_or(coarser(expected.dtype(), got.dtype()));
  finding.figures = compared(expected, got, finding.tolerance);
  if (finding.agrees() || likeness == Likeness::kExact || !is_floating(expected.dtype())) return finding;

  const double size = usual_size(expected);
  if (size <= 1.0) return finding;
  finding.tolerance.absolute *= size;
  finding.figures = compared(expected, got, finding.tolerance);
  return finding;
}

Finding judge_sequences(const std::vector<Value>& expected, const std::vector<Value>& got, Likeness likeness,
                        const std::optional<Tolerance>& tolerance) {
  Finding last;
  if (expected.size() != got.size()) {
    last.structural = fmt::format("{} items instead of {}", got.size(), expected.size());
  }
  for (std::size_t i = 0; i < expected.size() && last.agrees(); ++i) {
    last = judge(expected[i], got[i], likeness, tolerance);
  }
  return last;
}

bool looks_alike(const Tensor& expected, const Tensor& got) {
  return expected.dtype() == got.dtype() && expected.shape() == got.shape();
}

}  // namespace

bool are_same(const Value& expected, const Value& got) {
  const Tensor* want = expected.find_tensor();
  const Tensor* have = got.find_tensor();
  if (want == nullptr || have == nullptr || !has_numbers(*want) || !looks_alike(*want, *have)) return false;
  const at::Tensor& a = want->aten();
  const at::Tensor& b = have->aten();
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  };
  if (!is_plain(a) || !is_plain(b) || a.scalar_type() != b.scalar_type()) return false;
  return a.const_data_ptr() == b.const_data_ptr() || a.nbytes() == 0 ||
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool has_form_of(const Value& expected, const Value& got) {
  const auto* items = expected.find_sequence();
  const auto* others = got.find_sequence();
  if (items != nullptr && others != nullptr) return std::ranges::equal(*items, *others, has_form_of);
  const Tensor* want = expected.find_tensor();
  const Tensor* have = got.find_tensor();
  return want == nullptr || have == nullptr ? expected.is_none() && got.is_none() : looks_alike(*want, *have);
}

bool has_no_difference(const Finding& finding) {
  const Comparison& figures = finding.figures;
  return finding.structural.empty() && figures.count > 0 && figures.finite == figures.count &&
         figures.max_absolute == 0.0;
}

std::optional<Value> in_form_of(const Value& expected, const Value& got) {
  const Tensor* want = expected.find_tensor();
  const Tensor* have = got.find_tensor();
  if (want != nullptr && have != nullptr) {
    const auto formed = in_form_of(*want, *have);
    if (!formed || !has_numbers(*formed) || formed->dtype() == have->dtype()) return formed;
    return Value(Tensor(formed->aten().to(to_scalar_type(have->dtype()))));
  }

  const auto* wanted = expected.find_sequence();
  const auto* had = got.find_sequence();
  if (wanted == nullptr || had == nullptr)
    return expected.is_none() && got.is_none() ? std::optional(expected) : std::nullopt;
  if (wanted->size() != had->size()) return std::nullopt;

  std::vector<Value> items;
  for (std::size_t i = 0; i < wanted->size(); ++i) {
    auto item = in_form_of((*wanted)[i], (*had)[i]);
    if (!item) return std::nullopt;
    items.push_back(std::move(*item));
  }
  return Value(std::move(items));
}

Value form_of(const Value& value) {
  if (const Tensor* tensor = value.find_tensor()) {
    if (!has_numbers(*tensor)) return value;
    const at::Tensor one =
        at::empty({1}, tensor->aten().options()).as_strided(tensor->shape(), Sizes(tensor->shape().size(), 0));
    return Tensor::stored_as(tensor->dtype(), one);
  }
  std::vector<Value> items;
  if (const auto* held = value.find_sequence()) {
    for (const Value& item : *held) items.push_back(form_of(item));
  }
  return value.is_none() ? Value() : Value(std::move(items));
}

Finding judge(const Value& expected, const Value& got, Likeness likeness, const std::optional<Tolerance>& tolerance) {
  const auto unlike = [&] {
    Finding finding;
    finding.structural = fmt::format("{} instead of {}", text_of(got), text_of(expected));
    return finding;
  };
  if (const auto* items = expected.find_sequence()) {
    const auto* others = got.find_sequence();
    return others == nullptr ? unlike() : judge_sequences(*items, *others, likeness, tolerance);
  }
  if (expected.is_none() || got.find_tensor() == nullptr)
    return expected.is_none() && got.is_none() ? Finding() : unlike();

  const Tensor& want = expected.tensor();
  const Tensor& have = got.tensor();
  const auto formed = likeness == Likeness::kExact ? (looks_alike(want, have) ? std::optional(want) : std::nullopt)
                                                   : in_form_of(want, have);
  return formed ? judge_tensors(*formed, have, likeness, tolerance) : unlike();
}

std::size_t bytes_of(const Value& value) {
  if (const Tensor* tensor = value.find_tensor()) return has_numbers(*tensor) ? tensor->nbytes() : 0;
  std::size_t bytes = 0;
  if (const auto* items = value.find_sequence()) {
    for (const Value& item : *items) bytes += bytes_of(item);
  }
  return bytes;
}

}  // namespace exportguard::validation
