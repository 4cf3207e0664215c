#include "exportguard/ir/tensor.h"
#include "exportguard/common/sizes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "exportguard/common/errors.h"
#include "exportguard/common/torch_dtypes.h"
#include "ir/joined_parts.h"
#include "ir/transposed.h"

namespace exportguard::ir {
namespace {

using Sink = std::function<void(const void*, std::size_t)>;

// Elements of two and four bits live one to a byte in torch and packed in ONNX.
bool is_packed(DType dtype) { return bit_width(dtype) > 0 && bit_width(dtype) < 8; }

c10::ScalarType storage_type(DType dtype) {
  if (!is_packed(dtype)) return to_scalar_type(dtype);
  return dtype == DType::kInt4 || dtype == DType::kInt2 ? at::kChar : at::kByte;
}

// torch has no kernels for four-bit types; their bytes can be read as those of an 8-bit integer.
at::Tensor readable(const at::Tensor& tensor) {
  const c10::ScalarType type = tensor.scalar_type();
  if (type == at::ScalarType::Int4) return tensor.view(at::kChar);
  return type == at::ScalarType::UInt4 ? tensor.view(at::kByte) : tensor;
}

// Whether the memory that the elements lie in is there; who shards a model frees it and keeps the tensors.
bool has_memory(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.has_storage()) return true;
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t axis = 0; axis < tensor.dim(); ++axis) last += (tensor.size(axis) - 1) * tensor.stride(axis);
  return (static_cast<std::size_t>(last) + 1) * tensor.element_size() <= tensor.storage().nbytes();
}

void require_memory(const at::Tensor& tensor) {
  if (has_memory(tensor)) return;
  throw InvalidArgument(fmt::format(
      "a constant of sizes [{}] has no elements: its storage was freed and has {} bytes; gather the weights first",
      fmt::join(tensor.sizes(), ", "), tensor.storage().nbytes()));
}

at::Tensor dense_on_cpu(const at::Tensor& tensor) { return tensor.cpu().resolve_conj().resolve_neg().contiguous(); }

// A piece that lies on a GPU is made dense there, and comes through pinned memory, which torch keeps for the next one.
at::Tensor dense_through_pinned(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.resolve_conj().resolve_neg().contiguous();
  const at::Tensor host = at::empty(dense.sizes(), dense.options().device(at::kCPU).pinned_memory(true));
  return host.copy_(dense);
}

// The same of what is copied a piece at a time.
at::Tensor dense_piece(const at::Tensor& tensor) {
  if (tensor.is_cuda()) return dense_through_pinned(tensor);
  std::optional<at::Tensor> dense = dense_of_columns(tensor);
  return dense ? *std::move(dense) : dense_on_cpu(tensor);
}

void require_elements(const at::Tensor& tensor) {
  if (!tensor.defined()) throw InvalidArgument("a constant needs a tensor, got an undefined one");
  if (tensor.layout() != at::kStrided) {
    throw InvalidArgument("a constant must be a dense tensor, got one of another layout; call to_dense() on it first");
  }
  if (tensor.is_meta() || (tensor.has_storage() && tensor.storage().device_type() == at::kMeta)) {
    throw InvalidArgument("a constant has no elements (meta or fake tensor); load the weights before exporting");
  }
  require_memory(tensor);
}

// Joins elements of two or four bits, the first one in the lowest bits; a byte may span two pieces.
class Packer {
 public:
  Packer(int bits, Sink sink) : bits_(bits), sink_(std::move(sink)) {}

  void add(const void* data, std::size_t count) {
    const auto* elements = static_cast<const std::uint8_t*>(data);
    const auto mask = static_cast<std::uint8_t>((1 << bits_) - 1);
    std::vector<std::uint8_t> packed;
    packed.reserve(count * static_cast<std::size_t>(bits_) / 8 + 1);
    for (std::size_t i = 0; i < count; ++i) {
      byte_ = static_cast<std::uint8_t>(byte_ | ((elements[i] & mask) << filled_));
      filled_ += bits_;
      if (filled_ < 8) continue;
      packed.push_back(byte_);
      byte_ = 0;
      filled_ = 0;
    }
    sink_(packed.data(), packed.size());
  }

  void finish() {
    if (filled_ > 0) sink_(&byte_, 1);
  }

 private:
  int bits_;
  Sink sink_;
  std::uint8_t byte_ = 0;
  int filled_ = 0;  // bits of byte_
};

// The inverse: one element to a byte, signed ones with their sign.
at::Tensor unpacked(DType dtype, at::IntArrayRef shape, std::span<const std::byte> bytes) {
  const int bits = bit_width(dtype);
  const auto per_byte = static_cast<std::size_t>(8 / bits);
  const int unused = storage_type(dtype) == at::kChar ? 8 - bits : 0;
  const at::Tensor tensor = at::empty(shape, storage_type(dtype));
  auto* elements = static_cast<std::uint8_t*>(tensor.mutable_data_ptr());
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.numel()); ++i) {
    const auto shift = static_cast<int>(i % per_byte) * bits;
    const int value = (static_cast<int>(bytes[i / per_byte]) >> shift) & ((1 << bits) - 1);
    elements[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(value << unused) >> unused);
  }
  return tensor;
}

bool is_aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

// torch wants memory that it may write to; nobody writes to a constant.
at::Tensor shared(c10::ScalarType type, at::IntArrayRef shape, std::span<const std::byte> bytes,
                  std::shared_ptr<const void> owner) {
  void* data = const_cast<std::byte*>(bytes.data());
  if (bytes.empty()) return at::empty(shape, type);
  if (is_aligned(data, c10::elementSize(type))) {
    return at::from_blob(data, shape, [owner = std::move(owner)](void*) {}, type);
  }
  const at::Tensor copy = at::empty(shape, type);
  std::memcpy(copy.mutable_data_ptr(), data, bytes.size());
  return copy;
}

// Elements of a shape, nothing if a size is negative or a product does not fit: strides count a size of 0 as 1.
std::optional<std::int64_t> elements_of(std::span<const std::int64_t> shape) {
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; })) return std::nullopt;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(size, 1), &count)) return std::nullopt;
  }
  return std::ranges::find(shape, 0) != shape.end() ? 0 : count;
}

[[noreturn]] void fail_sizes(std::span<const std::int64_t> shape) {
  throw InvalidArgument(fmt::format("a tensor cannot have the sizes [{}]", fmt::join(shape, ", ")));
}

std::int64_t require_elements_of(std::span<const std::int64_t> shape) {
  if (const auto count = elements_of(shape)) return *count;
  fail_sizes(shape);
}

void visit_dense(const at::Tensor& tensor, std::size_t piece, const Sink& sink) {
  const auto* data = static_cast<const char*>(tensor.const_data_ptr());
  for (std::size_t done = 0; done < tensor.nbytes(); done += piece) {
    sink(data + done, std::min(piece, tensor.nbytes() - done));
  }
}

// What is copied goes by smaller pieces than what lies in memory as it is.
constexpr std::size_t kMostCopied = std::size_t{8} << 20;

std::size_t copied_piece(std::size_t piece) { return std::clamp<std::size_t>(piece, 1, kMostCopied); }

// Splits along the first dimension until a part fits into a piece, and copies that part alone.
void visit_elements(const at::Tensor& tensor, std::size_t piece, const Sink& sink) {
  if (tensor.numel() == 0) return;
  if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    return visit_dense(tensor, piece, sink);
  }
  piece = copied_piece(piece);
  if (tensor.nbytes() <= piece || tensor.dim() == 0) return visit_dense(dense_piece(tensor), piece, sink);
  const std::size_t row = tensor.nbytes() / static_cast<std::size_t>(tensor.size(0));
  if (row > piece) {
    for (std::int64_t i = 0; i < tensor.size(0); ++i) visit_elements(tensor.select(0, i), piece, sink);
    return;
  }
  const auto rows = static_cast<std::int64_t>(piece / row);
  for (std::int64_t i = 0; i < tensor.size(0); i += rows) {
    visit_elements(tensor.narrow(0, i, std::min(rows, tensor.size(0) - i)), piece, sink);
  }
}

// The same of tensors that lie one behind the other along an axis.
void visit_joined(const std::vector<at::Tensor>& parts, std::int64_t axis, std::size_t piece, const Sink& sink) {
  if (axis == 0) {
    for (const at::Tensor& part : parts) visit_elements(part, piece, sink);
    return;
  }

  const std::int64_t rows = parts.front().size(0);
  const std::size_t bytes =
      std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                      [](std::size_t sum, const at::Tensor& part) { return sum + part.nbytes(); });
  if (bytes == 0) return;
  if (bytes <= piece) {
    std::vector<at::Tensor> dense;  // of their own: copying into a slice of the result is slow for transposed parts
    for (const at::Tensor& part : parts) dense.push_back(dense_piece(part));
    return visit_dense(at::cat(dense, axis), piece, sink);
  }

  const auto of_parts = [&](auto&& cut) {
    std::vector<at::Tensor> result;
    for (const at::Tensor& part : parts) result.push_back(cut(part));
    return result;
  };

  const std::size_t row = bytes / static_cast<std::size_t>(rows);
  const auto step = static_cast<std::int64_t>(piece / row);
  if (step == 0) {
    for (std::int64_t i = 0; i < rows; ++i) {
      visit_joined(of_parts([&](const at::Tensor& part) { return part.select(0, i); }), axis - 1, piece, sink);
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; i += step) {
    const std::int64_t count = std::min(step, rows - i);
    visit_joined(of_parts([&](const at::Tensor& part) { return part.narrow(0, i, count); }), axis, piece, sink);
  }
}

template <typename T>
std::vector<T> elements(const at::Tensor& tensor, c10::ScalarType type) {
  const at::NoGradGuard no_grad;
  require_memory(tensor);
  const at::Tensor dense = dense_on_cpu(readable(tensor).to(type));
  const T* data = dense.const_data_ptr<T>();
  return {data, data + dense.numel()};
}

std::string identity_of(const at::Tensor& tensor, DType dtype) {
  return fmt::format("{}:{}:{}:[{}]:[{}]:{}{}", tensor.device().str(), fmt::ptr(tensor.const_data_ptr()), name(dtype),
                     fmt::join(tensor.sizes(), ","), fmt::join(tensor.strides(), ","), tensor.is_conj(),
                     tensor.is_neg());
}

}  // namespace

Tensor::Tensor(const at::Tensor& tensor) {
  require_elements(tensor);
  dtype_ = from_scalar_type(tensor.scalar_type());
  shape_ = tensor.sizes().vec();
  tensor_ = std::make_shared<const at::Tensor>(tensor);
}

Tensor Tensor::ints(std::span<const std::int64_t> values) {
  const at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  if (!values.empty()) std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size_bytes());
  return Tensor(tensor);
}

Tensor Tensor::ints(std::initializer_list<std::int64_t> values) {
  return ints(std::span(values.begin(), values.size()));
}

Tensor Tensor::scalar(std::int64_t value, DType dtype) {
  Tensor result(at::full({}, value, storage_type(dtype)));
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::scalar(double value, DType dtype) { return filled(value, dtype, {}); }

Tensor Tensor::filled(double value, DType dtype, std::span<const std::int64_t> shape) {
  // Arithmetic of float32 takes a number as the nearest one that it has. That of halves takes it as a wider one.
  if (dtype == DType::kFloat32) value = static_cast<float>(value);
  Tensor result(at::full(at::IntArrayRef(shape.data(), shape.size()), value, storage_type(dtype)));
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::strings(std::vector<std::string> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return strings(std::move(values), {count});
}

Tensor Tensor::strings(std::vector<std::string> values, std::vector<std::int64_t> shape) {
  const std::int64_t count = require_elements_of(shape);
  if (count != static_cast<std::int64_t>(values.size())) {
    throw InvalidArgument(
        fmt::format("a tensor of sizes [{}] has {} strings, got {}", fmt::join(shape, ", "), count, values.size()));
  }
  Tensor result;
  result.dtype_ = DType::kString;
  result.shape_ = std::move(shape);
  result.strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
  return result;
}

std::size_t Tensor::nbytes_of(DType dtype, std::span<const std::int64_t> shape) {
  const auto count = static_cast<std::size_t>(require_elements_of(shape));
  const auto bits = static_cast<std::size_t>(bit_width(dtype));
  if (bits == 0)
    throw InvalidArgument(fmt::format("elements of dtype {} are not plain memory", exportguard::name(dtype)));
  std::size_t total = 0;
  if (__builtin_mul_overflow(count, bits, &total)) fail_sizes(shape);
  return total / 8 + (total % 8 != 0 ? 1 : 0);
}

Tensor Tensor::from_memory(DType dtype, std::vector<std::int64_t> shape, std::span<const std::byte> bytes,
                           std::shared_ptr<const void> owner) {
  const std::size_t expected = nbytes_of(dtype, shape);
  if (expected != bytes.size()) {
    throw InvalidArgument(
        fmt::format("{}[{}] takes {} bytes, got {}", name(dtype), fmt::join(shape, ","), expected, bytes.size()));
  }
  const at::Tensor tensor =
      is_packed(dtype) ? unpacked(dtype, shape, bytes) : shared(storage_type(dtype), shape, bytes, std::move(owner));
  return stored_as(dtype, tensor);
}

Tensor Tensor::stored_as(DType dtype, const at::Tensor& stored) {
  require_elements(stored);
  const bool is_same = !is_packed(dtype) ? stored.scalar_type() == storage_type(dtype)
                                         : readable(stored).scalar_type() == storage_type(dtype);
  if (!is_same) {
    throw InvalidArgument(fmt::format("elements of dtype {} are not stored as torch's {}", name(dtype),
                                      c10::toString(stored.scalar_type())));
  }
  Tensor result(stored);
  result.dtype_ = dtype;
  return result;
}

std::int64_t Tensor::numel() const noexcept {
  return element_count(shape_).value_or(std::numeric_limits<std::int64_t>::max());
}

std::size_t Tensor::nbytes() const noexcept {
  if (strings_) {
    return std::accumulate(strings_->begin(), strings_->end(), std::size_t{0},
                           [](std::size_t sum, const std::string& text) { return sum + text.size(); });
  }
  return (static_cast<std::size_t>(numel()) * static_cast<std::size_t>(bit_width(dtype_)) + 7) / 8;
}

const at::Tensor& Tensor::aten() const {
  if (strings_) throw GraphError("a tensor of strings has no at::Tensor");
  const JoinedParts* parts = find_parts(*tensor_);
  return parts ? parts->dense() : *tensor_;
}

const std::vector<std::string>& Tensor::strings() const {
  if (!strings_) throw GraphError(fmt::format("expected a tensor of strings, got dtype {}", name(dtype_)));
  return *strings_;
}

std::vector<std::int64_t> Tensor::to_ints() const {
  if (!is_integral(dtype_) && dtype_ != DType::kBool) {
    throw GraphError(fmt::format("expected a tensor of integers or bools, got dtype {}", name(dtype_)));
  }
  return elements<std::int64_t>(aten(), at::kLong);
}

std::vector<double> Tensor::to_doubles() const {
  if (strings_ || is_complex(dtype_)) {
    throw GraphError(fmt::format("expected a tensor of real numbers, got dtype {}", name(dtype_)));
  }
  return elements<double>(aten(), at::kDouble);
}

std::string Tensor::identity() const {
  if (strings_) return fmt::format("strings:{}", fmt::ptr(strings_.get()));
  const JoinedParts* parts = find_parts(*tensor_);
  if (!parts) return identity_of(*tensor_, dtype_);
  std::string all = fmt::format("joined:{}", parts->axis());
  for (const at::Tensor& part : parts->tensors()) all += "|" + identity_of(part, dtype_);
  return all;
}

bool operator==(const Tensor& a, const Tensor& b) {
  if (a.dtype_ != b.dtype_ || a.shape_ != b.shape_) return false;
  if (a.strings_) return *a.strings_ == *b.strings_;
  if (a.numel() == 0 || a.identity() == b.identity()) return true;
  const at::NoGradGuard no_grad;
  require_memory(a.aten());
  require_memory(b.aten());
  const at::Tensor left = dense_on_cpu(readable(a.aten()));
  const at::Tensor right = dense_on_cpu(readable(b.aten()));
  return std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

void Tensor::visit(void (*sink)(void*, const void*, std::size_t), void* state, std::size_t piece) const {
  if (strings_) throw GraphError("a tensor of strings has no dense elements to visit");
  const at::NoGradGuard no_grad;
  const Sink forward = [&](const void* data, std::size_t bytes) { sink(state, data, bytes); };
  if (const JoinedParts* parts = find_parts(*tensor_)) {
    for (const at::Tensor& part : parts->tensors()) require_memory(part);
    return visit_joined(parts->tensors(), parts->axis(), copied_piece(piece), forward);
  }
  require_memory(*tensor_);  // it may have been freed since it was taken
  if (!is_packed(dtype_)) return visit_elements(*tensor_, std::max<std::size_t>(piece, 1), forward);
  Packer packer(bit_width(dtype_), forward);
  visit_elements(readable(*tensor_), std::max<std::size_t>(piece, 1),
                 [&](const void* data, std::size_t count) { packer.add(data, count); });
  packer.finish();
}

}  // namespace exportguard::ir
