#include "validation/elements.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "exportguard/common/errors.h"
#include "validation/lanes.h"

namespace exportguard::validation {
namespace {

using c10::ScalarType;

bool fits_float(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Float8_e4m3fn:
    case ScalarType::Float8_e4m3fnuz:
    case ScalarType::Float8_e5m2:
    case ScalarType::Float8_e5m2fnuz:
      return true;
    default:
      return false;
  }
}

bool is_supported(ScalarType type) {
  return fits_float(type) || type == ScalarType::Double || c10::isIntegralType(type, /*includeBool=*/true) ||
         type == ScalarType::ComplexFloat || type == ScalarType::ComplexDouble;
}

/// Bits of the fraction and exponent of the smallest normal number.
struct Format {
  int fraction;
  int smallest_exponent;
};

Format format_of(ScalarType type) {
  switch (type) {
    case ScalarType::Half:
      return {10, -14};
    case ScalarType::BFloat16:
      return {7, -126};
    case ScalarType::Float8_e4m3fn:
      return {3, -6};
    case ScalarType::Float8_e4m3fnuz:
      return {3, -7};
    case ScalarType::Float8_e5m2:
      return {2, -14};
    case ScalarType::Float8_e5m2fnuz:
      return {2, -15};
    case ScalarType::Float:
    case ScalarType::ComplexFloat:
      return {23, -126};
    default:
      return {52, -1022};
  }
}

/// In `wide` the key of the format's smallest normal number must be 2^fraction, as in the format itself.
UlpScale scale_of(const Format& format, const Format& wide) {
  UlpScale scale;
  scale.shift = wide.fraction - format.fraction;
  const std::int64_t exponent = format.smallest_exponent - wide.smallest_exponent;
  if (exponent == 0) return scale;
  scale.base = exponent << format.fraction;
  scale.smallest_normal = std::ldexp(1.0, format.smallest_exponent);
  scale.per_unit = std::ldexp(1.0, format.fraction - format.smallest_exponent);
  return scale;
}

template <typename From, typename To>
To converted(From value) {
  if constexpr (std::is_same_v<To, std::complex<double>>) {
    return {static_cast<double>(value), 0.0};
  } else if constexpr (std::is_same_v<From, std::uint64_t> && std::is_same_v<To, std::int64_t>) {
    return static_cast<std::int64_t>(value ^ (std::uint64_t{1} << 63));  // less kUnsignedOffset
  } else {
    return static_cast<To>(value);
  }
}

template <>
std::complex<double> converted(c10::complex<float> value) {
  return {static_cast<double>(value.real()), static_cast<double>(value.imag())};
}

template <>
std::complex<double> converted(c10::complex<double> value) {
  return {value.real(), value.imag()};
}

template <typename From>
From read(const char* at) {
  if constexpr (std::is_same_v<From, bool>) {
    return *at != 0;
  } else {
    From value;
    std::memcpy(static_cast<void*>(&value), at, sizeof(value));
    return value;
  }
}

}  // namespace

Arithmetic arithmetic_of(ScalarType expected, ScalarType got) {
  for (const ScalarType type : {expected, got}) {
    if (!is_supported(type)) throw InvalidArgument(fmt::format("{} cannot be compared", c10::toString(type)));
  }
  if (c10::isComplexType(expected) || c10::isComplexType(got)) return Arithmetic::kComplex;
  if (fits_float(expected) && fits_float(got)) return Arithmetic::kFloat;

  const bool are_integers = c10::isIntegralType(expected, true) && c10::isIntegralType(got, true);
  const bool are_alike = (expected == ScalarType::UInt64) == (got == ScalarType::UInt64);
  return are_integers && are_alike ? Arithmetic::kInteger : Arithmetic::kDouble;
}

UlpScale ulp_scale(ScalarType expected, ScalarType got, Arithmetic arithmetic) {
  const Format wide = arithmetic == Arithmetic::kFloat ? format_of(ScalarType::Float) : format_of(ScalarType::Double);
  if (arithmetic == Arithmetic::kInteger) return {};
  const Format a = format_of(expected);
  const Format b = format_of(got);
  return scale_of(a.fraction <= b.fraction ? a : b, wide);
}

Elements::Elements(const at::Tensor& tensor)
    : data_(static_cast<const char*>(tensor.const_data_ptr())),
      type_(tensor.scalar_type()),
      item_(tensor.element_size()),
      is_dense_(tensor.is_contiguous()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()) {}

Packing Elements::packing() const {
  if (type_ == ScalarType::Half) return Packing::kHalf;
  return type_ == ScalarType::BFloat16 ? Packing::kBFloat16 : Packing::kFloat;
}

const void* Elements::find_packed(std::int64_t begin) const {
  const bool has_packing = type_ == ScalarType::Float || type_ == ScalarType::Half || type_ == ScalarType::BFloat16;
  return is_dense_ && has_packing ? data_ + begin * static_cast<std::int64_t>(item_) : nullptr;
}

const float* Elements::floats(std::int64_t begin, std::size_t count, float* into) const {
  return fetch(begin, count, into, ScalarType::Float);
}

const double* Elements::doubles(std::int64_t begin, std::size_t count, double* into) const {
  return fetch(begin, count, into, ScalarType::Double);
}

const std::int64_t* Elements::integers(std::int64_t begin, std::size_t count, std::int64_t* into) const {
  return fetch(begin, count, into, ScalarType::Long);
}

const std::complex<double>* Elements::complexes(std::int64_t begin, std::size_t count,
                                                std::complex<double>* into) const {
  convert(begin, count, into);
  return into;
}

template <typename To>
const To* Elements::fetch(std::int64_t begin, std::size_t count, To* into, ScalarType own) const {
  if (is_dense_ && type_ == own) return reinterpret_cast<const To*>(data_) + begin;
  convert(begin, count, into);
  return into;
}

template <typename To>
void Elements::convert(std::int64_t begin, std::size_t count, To* into) const {
  switch (type_) {
#define EXPORTGUARD_CASE(type, name) \
  case ScalarType::name:             \
    return convert_from<type>(begin, count, into);
    EXPORTGUARD_CASE(float, Float)
    EXPORTGUARD_CASE(double, Double)
    EXPORTGUARD_CASE(c10::Half, Half)
    EXPORTGUARD_CASE(c10::BFloat16, BFloat16)
    EXPORTGUARD_CASE(c10::Float8_e4m3fn, Float8_e4m3fn)
    EXPORTGUARD_CASE(c10::Float8_e4m3fnuz, Float8_e4m3fnuz)
    EXPORTGUARD_CASE(c10::Float8_e5m2, Float8_e5m2)
    EXPORTGUARD_CASE(c10::Float8_e5m2fnuz, Float8_e5m2fnuz)
    EXPORTGUARD_CASE(bool, Bool)
    EXPORTGUARD_CASE(std::uint8_t, Byte)
    EXPORTGUARD_CASE(std::int8_t, Char)
    EXPORTGUARD_CASE(std::int16_t, Short)
    EXPORTGUARD_CASE(std::uint16_t, UInt16)
    EXPORTGUARD_CASE(std::int32_t, Int)
    EXPORTGUARD_CASE(std::uint32_t, UInt32)
    EXPORTGUARD_CASE(std::int64_t, Long)
    EXPORTGUARD_CASE(std::uint64_t, UInt64)
#undef EXPORTGUARD_CASE
    case ScalarType::ComplexFloat:
      if constexpr (std::is_same_v<To, std::complex<double>>)
        return convert_from<c10::complex<float>>(begin, count, into);
      break;
    case ScalarType::ComplexDouble:
      if constexpr (std::is_same_v<To, std::complex<double>>)
        return convert_from<c10::complex<double>>(begin, count, into);
      break;
    default:
      break;
  }
  throw InvalidArgument(fmt::format("{} cannot be compared", c10::toString(type_)));
}

// Runs along the last axis; the odometer over the others moves once a run.
template <typename From, typename To>
void Elements::convert_from(std::int64_t begin, std::size_t count, To* into) const {
  if (is_dense_) {
    const char* at = data_ + begin * static_cast<std::int64_t>(item_);
    if constexpr (std::is_same_v<From, c10::Half> && std::is_same_v<To, float>) {
      return widen_halves(reinterpret_cast<const std::uint16_t*>(at), count, into);
    }
    if constexpr (std::is_same_v<From, c10::BFloat16> && std::is_same_v<To, float>) {
      return widen_bfloats(reinterpret_cast<const std::uint16_t*>(at), count, into);
    }
    for (std::size_t i = 0; i < count; ++i) into[i] = converted<From, To>(read<From>(at + i * item_));
    return;
  }
  const std::size_t rank = sizes_.size();
  std::vector<std::int64_t> place(rank);
  std::int64_t left = begin;
  for (std::size_t axis = rank; axis-- > 0; left /= sizes_[axis]) place[axis] = left % sizes_[axis];

  const std::int64_t step = strides_[rank - 1] * static_cast<std::int64_t>(item_);
  for (std::size_t done = 0; done < count;) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < rank; ++axis) offset += place[axis] * strides_[axis];
    const char* at = data_ + offset * static_cast<std::int64_t>(item_);
    const auto run = std::min(count - done, static_cast<std::size_t>(sizes_[rank - 1] - place[rank - 1]));
    for (std::size_t i = 0; i < run; ++i, at += step) into[done + i] = converted<From, To>(read<From>(at));

    done += run;
    place[rank - 1] += static_cast<std::int64_t>(run);
    for (std::size_t axis = rank - 1; axis > 0 && place[axis] == sizes_[axis]; --axis) {
      place[axis] = 0;
      ++place[axis - 1];
    }
  }
}

}  // namespace exportguard::validation
