#include "serialization/tensor_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <span>
#include <vector>

#include "exportguard/common/errors.h"
#include "serialization/proto_values.h"

namespace exportguard::serialization {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestDense = std::size_t{1} << 30;  // bytes of a sparse tensor that is made dense

[[noreturn]] void fail(const pb::TensorProto& proto, const std::string& what) {
  throw FileError(fmt::format("tensor '{}': {}", proto.name(), what));
}

std::vector<std::int64_t> shape_of(const pb::TensorProto& proto) { return {proto.dims().begin(), proto.dims().end()}; }

DType dtype_of(const pb::TensorProto& proto) {
  if (const auto found = find_element_type(proto.data_type())) return *found;
  fail(proto, fmt::format("{} is not an element type of ONNX", proto.data_type()));
}

// Turns what is wrong with the sizes into an error that names the tensor.
template <typename Action>
ir::Tensor naming(const pb::TensorProto& proto, Action action) {
  try {
    return action();
  } catch (const InvalidArgument& error) {
    fail(proto, error.what());
  }
}

std::size_t bytes_of(const pb::TensorProto& proto, DType dtype) {
  try {
    return ir::Tensor::nbytes_of(dtype, shape_of(proto));
  } catch (const InvalidArgument& error) {
    fail(proto, error.what());
  }
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

ir::Tensor owning(const pb::TensorProto& proto, DType dtype, std::string&& raw) {
  const auto owner = std::make_shared<const std::string>(std::move(raw));
  return naming(proto, [&] { return ir::Tensor::from_memory(dtype, shape_of(proto), as_bytes(*owner), owner); });
}

// The low bytes of each number, which is how the typed fields hold smaller elements.
template <typename Field>
std::string low_bytes(const Field& numbers, std::size_t width) {
  std::string raw;
  raw.reserve(static_cast<std::size_t>(numbers.size()) * width);
  for (const auto number : numbers) raw.append(reinterpret_cast<const char*>(&number), width);
  return raw;
}

std::string typed_elements(const pb::TensorProto& proto, DType dtype) {
  const auto width = static_cast<std::size_t>(std::max(bit_width(dtype) / 8, 1));
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return low_bytes(proto.float_data(), sizeof(float));
    case DType::kFloat64:
    case DType::kComplex128:
      return low_bytes(proto.double_data(), sizeof(double));
    case DType::kInt64:
      return low_bytes(proto.int64_data(), width);
    case DType::kUint32:
    case DType::kUint64:
      return low_bytes(proto.uint64_data(), width);
    default:
      return low_bytes(proto.int32_data(), width);
  }
}

ir::Tensor read_strings(const pb::TensorProto& proto) {
  std::vector<std::string> texts(proto.string_data().begin(), proto.string_data().end());
  return naming(proto, [&] { return ir::Tensor::strings(std::move(texts), shape_of(proto)); });
}

std::int64_t number(const pb::TensorProto& proto, const pb::StringStringEntryProto& entry) {
  std::int64_t value = 0;
  const std::string& text = entry.value();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0) return value;
  fail(proto, fmt::format("'{}' of its external data must be a number from 0 on, got '{}'", entry.key(), text));
}

bool is_within(const fs::path& file, const fs::path& folder) {
  const auto [rest, _] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return rest == folder.end();
}

std::size_t dense_bytes(const pb::SparseTensorProto& proto, DType dtype) {
  std::size_t bytes = static_cast<std::size_t>(bit_width(dtype)) / 8;
  for (const std::int64_t size : proto.dims()) {
    const bool fits = size >= 0 && !__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes);
    if (fits && bytes <= kLargestDense) continue;
    throw FileError(fmt::format("sparse tensor '{}': sizes [{}] make no dense tensor of at most 1 GiB",
                                proto.values().name(), fmt::join(proto.dims(), ", ")));
  }
  return bytes;
}

// Row-major positions from indices of rank 1 (positions already) or 2 (a row of coordinates for each element).
std::vector<std::int64_t> positions(const pb::SparseTensorProto& proto, const ir::Tensor& indices, std::int64_t count) {
  const std::vector<std::int64_t> numbers = indices.to_ints();
  const auto bad = [&](const char* what) {
    throw FileError(fmt::format("sparse tensor '{}': {}", proto.values().name(), what));
  };

  const auto rank = static_cast<std::size_t>(proto.dims_size());
  const bool has_rows = indices.shape().size() == 2;
  const std::size_t width = has_rows ? rank : 1;
  if (numbers.size() != static_cast<std::size_t>(count) * width) bad("its indices are not one for each value");

  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::int64_t position = has_rows ? 0 : numbers[i];
    for (std::size_t k = 0; has_rows && k < rank; ++k) {
      const std::int64_t size = proto.dims(static_cast<int>(k));
      const std::int64_t coordinate = numbers[i * rank + k];
      if (coordinate < 0 || coordinate >= size) bad("an index is out of range");
      position = position * size + coordinate;
    }
    result.push_back(position);
  }
  return result;
}

}  // namespace

TensorReader::TensorReader(std::optional<fs::path> folder) : folder_(std::move(folder)) {}

ir::Tensor TensorReader::take(pb::TensorProto& proto) {
  if (!proto.has_raw_data() || proto.data_location() == pb::TensorProto::EXTERNAL) return copy(proto);
  const DType dtype = dtype_of(proto);
  if (dtype == DType::kString) fail(proto, "strings cannot stand in raw_data");
  return owning(proto, dtype, std::move(*proto.mutable_raw_data()));
}

ir::Tensor TensorReader::copy(const pb::TensorProto& proto) {
  const DType dtype = dtype_of(proto);
  if (proto.has_segment()) fail(proto, "tensors in segments cannot be read; write it as a whole");
  if (proto.data_location() == pb::TensorProto::EXTERNAL) return external(proto);
  if (dtype == DType::kString) return read_strings(proto);
  return owning(proto, dtype, proto.has_raw_data() ? std::string(proto.raw_data()) : typed_elements(proto, dtype));
}

ir::Tensor TensorReader::dense(const pb::SparseTensorProto& proto) {
  const ir::Tensor values = copy(proto.values());
  const ir::Tensor indices = copy(proto.indices());
  if (bit_width(values.dtype()) < 8)
    fail(proto.values(), "a sparse tensor of this dtype cannot be read; make it dense");
  std::string raw(dense_bytes(proto, values.dtype()), '\0');
  std::string elements;
  values.visit_bytes([&](const void* data, std::size_t n) { elements.append(static_cast<const char*>(data), n); });

  const std::size_t width = static_cast<std::size_t>(bit_width(values.dtype())) / 8;
  std::size_t i = 0;
  for (const std::int64_t position : positions(proto, indices, values.numel())) {
    const bool is_inside = position >= 0 && static_cast<std::size_t>(position) < raw.size() / width;
    if (!is_inside) fail(proto.values(), "an index of the sparse tensor is out of range");
    raw.replace(static_cast<std::size_t>(position) * width, width, elements, width * i++, width);
  }
  const auto owner = std::make_shared<const std::string>(std::move(raw));
  return ir::Tensor::from_memory(values.dtype(), {proto.dims().begin(), proto.dims().end()}, as_bytes(*owner), owner);
}

TensorReader::Range TensorReader::range_of(const pb::TensorProto& proto) {
  Range range;
  for (const pb::StringStringEntryProto& entry : proto.external_data()) {
    if (entry.key() == "location") range.location = entry.value();
    if (entry.key() == "offset") range.offset = number(proto, entry);
    if (entry.key() == "length") range.bytes = number(proto, entry);
  }
  if (range.location.empty()) fail(proto, "its external data has no location");
  return range;
}

// A tensor without a length takes what its shape does.
ir::Tensor TensorReader::external(const pb::TensorProto& proto) {
  const Range range = range_of(proto);
  const DType dtype = dtype_of(proto);
  std::shared_ptr<const MappedFile> mapped;
  try {
    mapped = file(range.location);
  } catch (const FileError& error) {
    fail(proto, error.what());
  }

  const std::size_t size = mapped->bytes().size();
  const auto offset = static_cast<std::size_t>(range.offset);
  if (offset > size) fail(proto, fmt::format("starts at byte {} of '{}', which has {}", offset, range.location, size));
  const std::size_t length = range.bytes ? static_cast<std::size_t>(*range.bytes) : bytes_of(proto, dtype);
  if (length > size - offset) {
    fail(proto, fmt::format("takes {} bytes from byte {} of '{}', which has {}; is the file cut short?", length, offset,
                            range.location, size));
  }

  const auto bytes = mapped->bytes().subspan(offset, length);
  return naming(proto, [&] { return ir::Tensor::from_memory(dtype, shape_of(proto), bytes, mapped); });
}

// The name alone is not believed: neither `..` nor a link may lead out of the model's folder.
std::shared_ptr<const MappedFile> TensorReader::file(const std::string& location) {
  const auto known = files_.find(location);
  if (known != files_.end()) return known->second;
  if (!folder_) {
    throw FileError(
        fmt::format("its elements are in '{}', but a model given as bytes has no folder; load the file by "
                    "its path",
                    location));
  }
  const fs::path wanted(location);
  std::error_code error;
  const fs::path folder = fs::canonical(*folder_, error);
  const fs::path path = fs::weakly_canonical(folder / wanted, error);
  if (wanted.is_absolute() || error || !is_within(path, folder)) {
    throw FileError(fmt::format("its elements are in '{}', which is outside the model's folder", location));
  }
  return files_.emplace(location, std::make_shared<const MappedFile>(path)).first->second;
}

}  // namespace exportguard::serialization
