#pragma once

#include <optional>
#include <string>

#include "exportguard/evaluator/value.h"
#include "exportguard/validation/divergence.h"

namespace exportguard::validation {

/// How much two values of one meaning may look different. A lowering keeps sizes as int64[1], complex numbers as pairs,
/// and computes in another dtype where a runtime has no kernel.
enum class Likeness : std::uint8_t {
  kExact,    ///< one dtype and one shape
  kMeaning,  ///< the same numbers
};

/// The expected value in the form of the other one; nothing if it has no such form.
std::optional<evaluator::Value> in_form_of(const evaluator::Value& expected, const evaluator::Value& got);

/// One element, or as many items, with the dtypes and sizes of the value: what `in_form_of` asks of it.
evaluator::Value form_of(const evaluator::Value& value);

/// Whether both are tensors of one dtype and one shape that show the same bits, as far as that can be told without a
/// copy; what cannot is not.
bool are_same(const evaluator::Value& expected, const evaluator::Value& got);

/// Whether both have the dtypes and sizes of each other.
bool has_form_of(const evaluator::Value& expected, const evaluator::Value& got);

/// Whether two tensors have the same numbers.
bool has_no_difference(const Finding& finding);

/// Compares two values: tensors by the tolerance of the coarser of their dtypes unless one is given, strings exactly,
/// sequences item by item (the figures are those of the first that differs). With `kMeaning` the absolute tolerance
/// grows with the values, whose sums are of their size.
Finding judge(const evaluator::Value& expected, const evaluator::Value& got, Likeness likeness,
              const std::optional<Tolerance>& tolerance);

/// Bytes of its tensors.
std::size_t bytes_of(const evaluator::Value& value);

}  // namespace exportguard::validation
