#include "exportguard/common/dtypes.h"

#include <fmt/format.h>

#include <array>

#include "exportguard/common/errors.h"

namespace exportguard {
namespace {

enum class Family : std::uint8_t { kOther, kFloat, kSigned, kUnsigned, kComplex };

struct Row {
  std::string_view name;
  int bits;
  Family family;
};

// Indexed by the dtype's value.
constexpr std::array<Row, 27> kRows{{
    {"undefined", 0, Family::kOther},  {"f32", 32, Family::kFloat},    {"u8", 8, Family::kUnsigned},
    {"i8", 8, Family::kSigned},        {"u16", 16, Family::kUnsigned}, {"i16", 16, Family::kSigned},
    {"i32", 32, Family::kSigned},      {"i64", 64, Family::kSigned},   {"string", 0, Family::kOther},
    {"bool", 8, Family::kOther},       {"f16", 16, Family::kFloat},    {"f64", 64, Family::kFloat},
    {"u32", 32, Family::kUnsigned},    {"u64", 64, Family::kUnsigned}, {"c64", 64, Family::kComplex},
    {"c128", 128, Family::kComplex},   {"bf16", 16, Family::kFloat},   {"f8e4m3fn", 8, Family::kFloat},
    {"f8e4m3fnuz", 8, Family::kFloat}, {"f8e5m2", 8, Family::kFloat},  {"f8e5m2fnuz", 8, Family::kFloat},
    {"u4", 4, Family::kUnsigned},      {"i4", 4, Family::kSigned},     {"f4e2m1", 4, Family::kFloat},
    {"f8e8m0", 8, Family::kFloat},     {"u2", 2, Family::kUnsigned},   {"i2", 2, Family::kSigned},
}};

const Row& row(DType dtype) { return kRows.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::string_view name(DType dtype) { return row(dtype).name; }

std::optional<DType> find_dtype(std::string_view text) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

DType dtype(std::string_view text) {
  if (const auto found = find_dtype(text)) return *found;
  throw InvalidArgument(fmt::format("unknown dtype '{}'; use a name such as f32, f16, bf16, i64 or bool", text));
}

int bit_width(DType dtype) { return row(dtype).bits; }
bool is_floating(DType dtype) { return row(dtype).family == Family::kFloat; }
bool is_unsigned(DType dtype) { return row(dtype).family == Family::kUnsigned; }
bool is_integral(DType dtype) { return row(dtype).family == Family::kSigned || is_unsigned(dtype); }
bool is_complex(DType dtype) { return row(dtype).family == Family::kComplex; }

}  // namespace exportguard
