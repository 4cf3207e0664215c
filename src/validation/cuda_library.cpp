#include "validation/cuda_library.h"

#include <ATen/core/Tensor.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "exportguard/common/errors.h"
#include "validation/elements.h"

namespace exportguard::validation::cuda {
namespace {

/// The functions of the library; null without it.
struct Library {
  DeviceCount* device_count = nullptr;
  ComparePairs* compare = nullptr;
};

std::filesystem::path own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&device_count), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// Never closed: cudart must outlive every thread that used it.
Library open_library() {
  void* handle = dlopen((own_folder() / "libexportguard_cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {};
  return {reinterpret_cast<DeviceCount*>(dlsym(handle, "exportguard_cuda_device_count")),
          reinterpret_cast<ComparePairs*>(dlsym(handle, "exportguard_cuda_compare"))};
}

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

std::optional<Element> element_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
      return Element::kFloat64;
    case c10::ScalarType::Float:
      return Element::kFloat32;
    case c10::ScalarType::Half:
      return Element::kFloat16;
    case c10::ScalarType::BFloat16:
      return Element::kBFloat16;
    case c10::ScalarType::Long:
      return Element::kInt64;
    case c10::ScalarType::Int:
      return Element::kInt32;
    case c10::ScalarType::Short:
      return Element::kInt16;
    case c10::ScalarType::Char:
      return Element::kInt8;
    case c10::ScalarType::Byte:
      return Element::kUint8;
    case c10::ScalarType::Bool:
      return Element::kBool;
    default:
      return std::nullopt;
  }
}

bool is_readable_on(const ir::Tensor& tensor, const c10::Device& device) {
  return tensor.aten().device() == device && element_of(tensor.aten().scalar_type()).has_value();
}

DevicePair device_pair(const Pair& pair, const at::Tensor& expected, const at::Tensor& got) {
  const Arithmetic arithmetic = arithmetic_of(expected.scalar_type(), got.scalar_type());
  return {.expected = expected.const_data_ptr(),
          .got = got.const_data_ptr(),
          .count = expected.numel(),
          .expected_element = element_of(expected.scalar_type()).value(),
          .got_element = element_of(got.scalar_type()).value(),
          .bounds = {pair.tolerance.absolute, pair.tolerance.relative},
          .scale = ulp_scale(expected.scalar_type(), got.scalar_type(), arithmetic),
          .in_double = arithmetic == Arithmetic::kDouble ? 1 : 0,
          .in_integers = arithmetic == Arithmetic::kInteger ? 1 : 0};
}

}  // namespace

int device_count() { return library().device_count == nullptr ? 0 : library().device_count(); }

std::optional<int> common_device(std::span<const Pair> pairs) {
  if (pairs.empty() || pairs.front().expected->dtype() == DType::kString) return std::nullopt;
  const c10::Device device = pairs.front().expected->aten().device();
  if (!device.is_cuda() || device_count() == 0) return std::nullopt;
  for (const Pair& pair : pairs) {
    if (!is_readable_on(*pair.expected, device) || !is_readable_on(*pair.got, device)) return std::nullopt;
  }
  return device.index();
}

std::vector<DeviceResult> compare(std::span<const Pair> pairs, int device) {
  std::vector<at::Tensor> dense;  // keeps what had to be made contiguous
  std::vector<DevicePair> raw;
  for (const Pair& pair : pairs) {
    dense.push_back(pair.expected->aten().resolve_neg().contiguous());
    dense.push_back(pair.got->aten().resolve_neg().contiguous());
    raw.push_back(device_pair(pair, dense[dense.size() - 2], dense.back()));
  }
  std::vector<DeviceResult> results(pairs.size());
  const char* error = library().compare(raw.data(), raw.size(), device, results.data());
  if (error != nullptr) throw Error(fmt::format("cannot compare on CUDA device {}: {}", device, error));
  return results;
}

}  // namespace exportguard::validation::cuda
