#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "exportguard/common/dtypes.h"
#include "exportguard/evaluator/value.h"

namespace exportguard::evaluator {

/// What a value of a graph is while it runs. Dtypes that torch lacks or has no kernels for are stored as another:
/// strings as int64 numbers of a `StringPool`, elements of two and four bits as 8-bit integers, so that whatever only
/// moves elements works on all of them.
struct Datum {
  DType dtype = DType::kUndefined;                  ///< of a tensor
  at::Tensor tensor;                                ///< undefined for a sequence and for nothing
  std::shared_ptr<const std::vector<Datum>> items;  ///< null unless a sequence

  bool is_none() const { return !tensor.defined() && items == nullptr; }
  bool is_tensor() const { return tensor.defined(); }

  static Datum of(at::Tensor tensor, DType dtype) { return {dtype, std::move(tensor), nullptr}; }
  static Datum sequence(std::vector<Datum> items);
};

/// Strings by number, each once. A pool may stand on another one, which it does not change.
class StringPool {
 public:
  explicit StringPool(const StringPool* base = nullptr);
  std::int64_t number(const std::string& text);
  const std::string& text(std::int64_t number) const;  ///< @throws InvalidArgument for a number without a text

 private:
  const StringPool* base_;
  std::int64_t first_;
  std::unordered_map<std::string, std::int64_t> numbers_;
  std::vector<const std::string*> texts_;
};

/// How elements of that dtype are stored. @throws InvalidArgument for the undefined dtype.
c10::ScalarType storage_of(DType dtype);

Datum to_datum(const Value& value, StringPool& strings, const c10::Device& device);
Value to_value(const Datum& datum, const StringPool& strings);

}  // namespace exportguard::evaluator
