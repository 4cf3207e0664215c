#include "exportguard/ir/joined.h"

#include <ATen/OpaqueTensorImpl.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "exportguard/common/errors.h"
#include "ir/joined_parts.h"

namespace exportguard::ir {
namespace {

// A tensor of torch that has sizes and a dtype and no memory, as tensors of other libraries have; torch itself never
// sees one: `Tensor::aten` gives the elements in one piece.
using Opaque = at::OpaqueTensorImpl<std::shared_ptr<const JoinedParts>>;

at::Tensor opaque(std::shared_ptr<const JoinedParts> parts, at::IntArrayRef shape) {
  const at::Tensor& first = parts->tensors().front();
  return at::detail::make_tensor<Opaque>(c10::DispatchKeySet(c10::DispatchKey::CPU), first.dtype(), first.device(),
                                         std::move(parts), shape, /*is_non_overlapping_and_dense=*/false);
}

bool may_follow(const Tensor& first, const Tensor& part, std::size_t axis) {
  if (part.dtype() != first.dtype() || part.shape().size() != first.shape().size()) return false;
  std::vector<std::int64_t> expected = first.shape();
  expected[axis] = part.shape()[axis];
  return part.shape() == expected;
}

}  // namespace

const at::Tensor& JoinedParts::dense() const {
  std::call_once(is_made_, [this] {
    const at::NoGradGuard no_grad;
    dense_ = at::cat(tensors_, axis_);
  });
  return dense_;
}

const JoinedParts* find_parts(const at::Tensor& tensor) {
  auto* impl = dynamic_cast<Opaque*>(tensor.unsafeGetTensorImpl());
  return impl ? impl->opaque_handle().get() : nullptr;
}

Tensor joined(std::span<const Tensor> parts, std::int64_t axis) {
  if (parts.empty()) throw InvalidArgument("a joined tensor needs a part");
  const Tensor& first = parts.front();
  const int bits = bit_width(first.dtype());
  if (bits < 8) throw InvalidArgument(fmt::format("parts of {} cannot be joined", name(first.dtype())));
  if (axis < 0 || axis >= static_cast<std::int64_t>(first.shape().size())) {
    throw InvalidArgument(fmt::format("axis {} is none of a tensor of rank {}", axis, first.shape().size()));
  }

  std::vector<std::int64_t> shape = first.shape();
  shape[static_cast<std::size_t>(axis)] = 0;
  std::vector<at::Tensor> tensors;
  for (const Tensor& part : parts) {
    if (!may_follow(first, part, static_cast<std::size_t>(axis))) {
      throw InvalidArgument(fmt::format("{}[{}] cannot stand behind {}[{}] along axis {}", name(part.dtype()),
                                        fmt::join(part.shape(), ","), name(first.dtype()),
                                        fmt::join(first.shape(), ","), axis));
    }
    shape[static_cast<std::size_t>(axis)] += part.shape()[static_cast<std::size_t>(axis)];
    tensors.push_back(part.aten());
  }
  return Tensor(opaque(std::make_shared<JoinedParts>(std::move(tensors), axis), shape));
}

}  // namespace exportguard::ir
