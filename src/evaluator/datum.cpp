#include "evaluator/datum.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"

namespace exportguard::evaluator {
namespace {

at::Tensor numbered(const ir::Tensor& tensor, StringPool& strings) {
  std::vector<std::int64_t> numbers;
  for (const std::string& text : tensor.strings()) numbers.push_back(strings.number(text));
  return at::from_blob(numbers.data(), tensor.shape(), at::kLong).clone();
}

// Four-bit dtypes of torch have no kernels; their bytes are those of an 8-bit integer.
at::Tensor plain(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::ScalarType::Int4) return tensor.view(at::kChar);
  return tensor.scalar_type() == at::ScalarType::UInt4 ? tensor.view(at::kByte) : tensor;
}

ir::Tensor texts(const at::Tensor& numbers, const StringPool& strings) {
  const at::Tensor dense = numbers.cpu().contiguous();
  const auto* first = dense.const_data_ptr<std::int64_t>();
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < dense.numel(); ++i) result.push_back(strings.text(first[i]));
  return ir::Tensor::strings(std::move(result), numbers.sizes().vec());
}

}  // namespace

const ir::Tensor& Value::tensor() const {
  if (const ir::Tensor* found = find_tensor()) return *found;
  throw InvalidArgument(fmt::format("expected a tensor, got {}", is_none() ? "nothing" : "a sequence"));
}

Datum Datum::sequence(std::vector<Datum> items) {
  return {DType::kUndefined, {}, std::make_shared<const std::vector<Datum>>(std::move(items))};
}

StringPool::StringPool(const StringPool* base)
    : base_(base), first_(base == nullptr ? 0 : base->first_ + static_cast<std::int64_t>(base->texts_.size())) {}

std::int64_t StringPool::number(const std::string& text) {
  if (base_ != nullptr) {
    const auto known = base_->numbers_.find(text);
    if (known != base_->numbers_.end()) return known->second;
  }
  const auto [place, is_new] = numbers_.emplace(text, first_ + static_cast<std::int64_t>(texts_.size()));
  if (is_new) texts_.push_back(&place->first);
  return place->second;
}

const std::string& StringPool::text(std::int64_t number) const {
  if (number < first_ && base_ != nullptr) return base_->text(number);
  const std::int64_t place = number - first_;
  if (place < 0 || place >= static_cast<std::int64_t>(texts_.size()))
    throw InvalidArgument("no string has that number");
  return *texts_[static_cast<std::size_t>(place)];
}

c10::ScalarType storage_of(DType dtype) {
  switch (dtype) {
    case DType::kString:
      return at::kLong;
    case DType::kInt4:
    case DType::kInt2:
      return at::kChar;
    case DType::kUint4:
    case DType::kUint2:
    case DType::kFloat4E2M1:
      return at::kByte;
    default:
      return to_scalar_type(dtype);
  }
}

Datum to_datum(const Value& value, StringPool& strings, const c10::Device& device) {
  if (value.is_none()) return {};
  if (const auto* items = value.find_sequence()) {
    std::vector<Datum> data;
    for (const Value& item : *items) data.push_back(to_datum(item, strings, device));
    return Datum::sequence(std::move(data));
  }
  const ir::Tensor& tensor = value.tensor();
  const at::Tensor stored = tensor.dtype() == DType::kString ? numbered(tensor, strings) : plain(tensor.aten());
  return Datum::of(stored.device() == device ? stored : stored.to(device), tensor.dtype());
}

Value to_value(const Datum& datum, const StringPool& strings) {
  if (datum.is_none()) return {};
  if (datum.items != nullptr) {
    std::vector<Value> items;
    for (const Datum& item : *datum.items) items.push_back(to_value(item, strings));
    return items;
  }
  if (datum.dtype == DType::kString) return texts(datum.tensor, strings);
  return ir::Tensor::stored_as(datum.dtype, datum.tensor);
}

}  // namespace exportguard::evaluator
