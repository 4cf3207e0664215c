// Comparison of tensors on the device: one launch for all pairs, one pass over the data. A block takes a tile of one
// pair; the last block of a pair to finish merges the figures of all of its tiles. A thread sums its 256 pairs of a
// tile in float32 where they are float32 or narrower, and what threads have in float64.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "validation/cuda_kernels.h"

namespace exportguard::validation::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kTile = 64 * 1024;  // pairs that a block takes

struct Tile {
  std::int32_t pair;
  std::int32_t first_of_pair;  // index of the pair's first tile
  std::int32_t tiles_of_pair;
  std::int64_t begin;
};

template <typename T>
__device__ double at(const void* data, std::int64_t i) {
  return static_cast<double>(static_cast<const T*>(data)[i]);
}

__device__ double load(Element element, const void* data, std::int64_t i) {
  switch (element) {
    case Element::kFloat64:
      return at<double>(data, i);
    case Element::kFloat32:
      return at<float>(data, i);
    case Element::kFloat16:
      return static_cast<double>(__half2float(static_cast<const __half*>(data)[i]));
    case Element::kBFloat16:
      return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]));
    case Element::kInt64:
      return at<long long>(data, i);
    case Element::kInt32:
      return at<int>(data, i);
    case Element::kInt16:
      return at<short>(data, i);
    case Element::kInt8:
      return at<signed char>(data, i);
    case Element::kUint8:
      return at<unsigned char>(data, i);
    case Element::kBool:
      return static_cast<const unsigned char*>(data)[i] != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

__device__ std::int64_t load_integer(Element element, const void* data, std::int64_t i) {
  if (element == Element::kInt64) return static_cast<const std::int64_t*>(data)[i];
  return static_cast<std::int64_t>(load(element, data, i));
}

// Most pairs of a right model are a few units apart, and neighbours add to the same counter: a warp adds once for each
// bucket that occurs in it.
__device__ void count_bucket(unsigned* counters, int bucket) {
  const unsigned active = __activemask();
  const unsigned same = __match_any_sync(active, bucket);
  const int leader = __ffs(static_cast<int>(same)) - 1;
  if (static_cast<int>(threadIdx.x % 32) == leader) {
    atomicAdd(&counters[bucket], static_cast<unsigned>(__popc(same)));
  }
}

__device__ void add_integers(const DevicePair& pair, Figures& figures, unsigned* counters, std::int64_t i) {
  const std::int64_t expected = load_integer(pair.expected_element, pair.expected, i);
  const std::int64_t got = load_integer(pair.got_element, pair.got, i);
  const std::uint64_t distance = distance_of(expected, got);
  add_integer_pair(figures, expected, got, distance, 0.0, pair.bounds, i);
  count_bucket(counters, bucket_of(distance));
}

__device__ void add_reals(const DevicePair& pair, Figures& figures, unsigned* counters, std::int64_t i) {
  const double expected = load(pair.expected_element, pair.expected, i);
  const double got = load(pair.got_element, pair.got, i);
  if (!add_pair(figures, expected, got, pair.bounds, i)) return;
  const std::uint64_t distance = pair.in_double ? distance_of(key_of(expected, pair.scale), key_of(got, pair.scale))
                                                : distance_of(key_of(static_cast<float>(expected), pair.scale),
                                                              key_of(static_cast<float>(got), pair.scale));
  count_bucket(counters, bucket_of(distance));
}

__device__ float widened(float value) { return value; }
__device__ float widened(__half value) { return __half2float(value); }
__device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }

/// The pairs of one thread in a tile.
struct Share {
  std::int64_t begin;  // of the tile
  std::int32_t count;  // of the tile
  unsigned* counters;
};

__device__ void add_float(const DevicePair& pair, Figures& figures, FloatFigures& few, const Share& share,
                          float expected, float got, std::int32_t at) {
  if (is_for_float(expected, got)) {
    add_float_pair(few, expected, got, pair.bounds, at);
  } else if (!add_pair(figures, expected, got, pair.bounds, share.begin + at)) {
    return;
  }
  count_bucket(share.counters, bucket_of(distance_of(key_of(expected, pair.scale), key_of(got, pair.scale))));
}

// The values of several pairs are asked for before the first one is looked at: the memory is far away.
template <typename Expected, typename Got>
__device__ void add_floats(const DevicePair& pair, Figures& figures, const Share& share) {
  constexpr int kBatch = 4;
  const Expected* expected = static_cast<const Expected*>(pair.expected) + share.begin;
  const Got* got = static_cast<const Got*>(pair.got) + share.begin;
  FloatFigures few;
  for (std::int32_t first = static_cast<std::int32_t>(threadIdx.x); first < share.count; first += kBatch * kThreads) {
    float want[kBatch];
    float have[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int32_t at = first + k * kThreads;
      want[k] = at < share.count ? widened(expected[at]) : 0.0F;
      have[k] = at < share.count ? widened(got[at]) : 0.0F;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const std::int32_t at = first + k * kThreads;
      if (at < share.count) add_float(pair, figures, few, share, want[k], have[k], at);
    }
  }
  take_over(figures, few, share.begin);
}

__device__ void add_any(const DevicePair& pair, Figures& figures, const Share& share) {
  for (std::int32_t at = static_cast<std::int32_t>(threadIdx.x); at < share.count; at += kThreads) {
    if (pair.in_integers) {
      add_integers(pair, figures, share.counters, share.begin + at);
    } else {
      add_reals(pair, figures, share.counters, share.begin + at);
    }
  }
}

// Pairs of one narrow type, and those of a model that was made narrower, each have code of their own.
__device__ void add_share(const DevicePair& pair, Figures& figures, const Share& share) {
  const Element expected = pair.expected_element;
  const Element got = pair.got_element;
  if (expected == Element::kFloat32 && got == Element::kFloat32) return add_floats<float, float>(pair, figures, share);
  if (expected == Element::kFloat32 && got == Element::kFloat16) return add_floats<float, __half>(pair, figures, share);
  if (expected == Element::kFloat16 && got == Element::kFloat16)
    return add_floats<__half, __half>(pair, figures, share);
  if (expected == Element::kFloat32 && got == Element::kBFloat16) {
    return add_floats<float, __nv_bfloat16>(pair, figures, share);
  }
  if (expected == Element::kBFloat16 && got == Element::kBFloat16) {
    return add_floats<__nv_bfloat16, __nv_bfloat16>(pair, figures, share);
  }
  add_any(pair, figures, share);
}

__device__ void reduce(Figures* of_threads) {
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < step) merge(of_threads[threadIdx.x], of_threads[threadIdx.x + step]);
  }
  __syncthreads();
}

__device__ void add_histogram(const unsigned (&counters)[kWarps][kBuckets], std::int64_t* ulps) {
  for (int bucket = static_cast<int>(threadIdx.x); bucket < kBuckets; bucket += kThreads) {
    unsigned long long sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += counters[warp][bucket];
    if (sum > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&ulps[bucket]), sum);
  }
}

__global__ void compare_tiles(const DevicePair* pairs, const Tile* tiles, Figures* of_tiles, unsigned* finished,
                              DeviceResult* results) {
  __shared__ Figures of_threads[kThreads];
  __shared__ unsigned counters[kWarps][kBuckets];
  __shared__ bool is_last;
  const Tile tile = tiles[blockIdx.x];
  const DevicePair pair = pairs[tile.pair];
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * kBuckets; i += kThreads) {
    counters[i / kBuckets][i % kBuckets] = 0;
  }
  __syncthreads();

  Figures figures;
  const std::int64_t left = pair.count - tile.begin;
  add_share(pair, figures,
            {tile.begin, static_cast<std::int32_t>(left < kTile ? left : kTile), counters[threadIdx.x / 32]});
  of_threads[threadIdx.x] = figures;
  reduce(of_threads);
  add_histogram(counters, results[tile.pair].ulps);

  if (threadIdx.x == 0) {
    of_tiles[blockIdx.x] = of_threads[0];
    __threadfence();
    is_last = atomicAdd(&finished[tile.pair], 1U) + 1 == static_cast<unsigned>(tile.tiles_of_pair);
  }
  __syncthreads();
  if (!is_last) return;

  __threadfence();
  Figures merged;
  for (int i = static_cast<int>(threadIdx.x); i < tile.tiles_of_pair; i += kThreads) {
    merge(merged, of_tiles[tile.first_of_pair + i]);
  }
  of_threads[threadIdx.x] = merged;
  reduce(of_threads);
  if (threadIdx.x == 0) results[tile.pair].figures = of_threads[0];
}

/// Memory on the device that is given back with its owner.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }

  cudaError_t reserve(std::size_t bytes) { return cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// The calling thread's device is another one while this lives. One that is that already is not set: setting it makes
/// a context there.
class OnDevice {
 public:
  explicit OnDevice(int device) : device_(device), before_(device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && before_ != device_) error_ = cudaSetDevice(device_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (before_ != device_) cudaSetDevice(before_);
  }
  cudaError_t error() const { return error_; }

 private:
  int device_;
  int before_;
  cudaError_t error_ = cudaSuccess;
};

std::vector<Tile> tiles_of(const DevicePair* pairs, std::size_t count) {
  std::vector<Tile> tiles;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::int32_t>(tiles.size());
    const auto of_pair = static_cast<std::int32_t>((pairs[i].count + kTile - 1) / kTile);
    for (std::int32_t tile = 0; tile < of_pair; ++tile) {
      tiles.push_back({static_cast<std::int32_t>(i), first, of_pair, tile * kTile});
    }
  }
  return tiles;
}

cudaError_t run(const DevicePair* pairs, std::size_t count, const std::vector<Tile>& tiles, DeviceResult* results) {
  DeviceMemory device_pairs, device_tiles, of_tiles, finished, device_results;
  const std::size_t result_bytes = count * sizeof(DeviceResult);
  cudaError_t error = cudaSuccess;
  const auto ok = [&](cudaError_t next) { return (error = next) == cudaSuccess; };

  // torch may still be computing the operands on a stream of its own.
  if (!ok(cudaDeviceSynchronize())) return error;
  if (!ok(device_pairs.reserve(count * sizeof(DevicePair)))) return error;
  if (!ok(device_tiles.reserve(tiles.size() * sizeof(Tile)))) return error;
  if (!ok(of_tiles.reserve(tiles.size() * sizeof(Figures)))) return error;
  if (!ok(finished.reserve(count * sizeof(unsigned)))) return error;
  if (!ok(device_results.reserve(result_bytes))) return error;
  if (!ok(cudaMemcpy(device_pairs.as<void>(), pairs, count * sizeof(DevicePair), cudaMemcpyHostToDevice))) return error;
  if (!ok(cudaMemcpy(device_tiles.as<void>(), tiles.data(), tiles.size() * sizeof(Tile), cudaMemcpyHostToDevice))) {
    return error;
  }
  if (!ok(cudaMemset(finished.as<void>(), 0, count * sizeof(unsigned)))) return error;
  if (!ok(cudaMemcpy(device_results.as<void>(), results, result_bytes, cudaMemcpyHostToDevice))) return error;

  compare_tiles<<<static_cast<unsigned>(tiles.size()), kThreads>>>(
      device_pairs.as<const DevicePair>(), device_tiles.as<const Tile>(), of_tiles.as<Figures>(),
      finished.as<unsigned>(), device_results.as<DeviceResult>());
  if (!ok(cudaGetLastError())) return error;
  return cudaMemcpy(results, device_results.as<void>(), result_bytes, cudaMemcpyDeviceToHost);
}

}  // namespace
}  // namespace exportguard::validation::cuda

extern "C" {

__attribute__((visibility("default"))) int exportguard_cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // clears it
  return 0;
}

__attribute__((visibility("default"))) const char* exportguard_cuda_compare(
    const exportguard::validation::cuda::DevicePair* pairs, std::size_t count, int device,
    exportguard::validation::cuda::DeviceResult* results) {
  namespace cuda = exportguard::validation::cuda;
  for (std::size_t i = 0; i < count; ++i) results[i] = {};
  const std::vector<cuda::Tile> tiles = cuda::tiles_of(pairs, count);
  if (tiles.empty()) return nullptr;
  const cuda::OnDevice on_device(device);
  cudaError_t error = on_device.error();
  if (error == cudaSuccess) error = cuda::run(pairs, count, tiles, results);
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // clears it
  return cudaGetErrorString(error);
}
}
