#include "exportguard/validation/comparison.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <limits>
#include <thread>

#include "exportguard/common/errors.h"
#include "validation/cuda_library.h"
#include "validation/elements.h"
#include "validation/lanes.h"

namespace exportguard::validation {
namespace {

static_assert(kUlpBuckets == static_cast<std::size_t>(kBuckets));

constexpr std::int64_t kLeastChunk = std::int64_t{1} << 20;  // pairs that a thread takes at once
constexpr std::int64_t kMostChunks = 64;                     // of a pair: each finds its largest differences anew

/// Figures and histogram of a part of a pair.
struct Part {
  Figures figures;
  Histogram ulps{};
};

/// Both sides of a pair on the host, ready to be read; keeps what had to be copied there.
struct Operands {
  explicit Operands(const Pair& pair)
      : expected_tensor(on_host(*pair.expected)),
        got_tensor(on_host(*pair.got)),
        expected(expected_tensor),
        got(got_tensor),
        arithmetic(arithmetic_of(expected_tensor.scalar_type(), got_tensor.scalar_type())),
        scale(ulp_scale(expected_tensor.scalar_type(), got_tensor.scalar_type(), arithmetic)),
        offset(expected_tensor.scalar_type() == at::kUInt64 ? kUnsignedOffset : 0.0),
        bounds{pair.tolerance.absolute, pair.tolerance.relative},
        count(expected_tensor.numel()) {}

  static at::Tensor on_host(const ir::Tensor& tensor) { return tensor.aten().cpu().resolve_conj().resolve_neg(); }

  at::Tensor expected_tensor;
  at::Tensor got_tensor;
  Elements expected;
  Elements got;
  Arithmetic arithmetic;
  UlpScale scale;
  double offset;
  Bounds bounds;
  std::int64_t count;
};

template <typename T>
void add_one_by_one(Part& part, const T* expected, const T* got, std::size_t count, std::int64_t position,
                    const Operands& of) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = position + static_cast<std::int64_t>(i);
    if (!add_pair(part.figures, static_cast<double>(expected[i]), static_cast<double>(got[i]), of.bounds, at)) continue;
    ++part.ulps[static_cast<std::size_t>(
        bucket_of(distance_of(key_of(expected[i], of.scale), key_of(got[i], of.scale))))];
  }
}

template <typename T>
void add_reals(Part& part, const T* expected, const T* got, std::size_t count, std::int64_t position,
               const Operands& of) {
  const std::size_t whole = count / kLanes * kLanes;
  const Block<T> block{expected, got, whole, position};
  const std::size_t done = add_block<T>()(part.figures, part.ulps, block, of.bounds, of.scale) ? whole : 0;
  add_one_by_one(part, expected + done, got + done, count - done, position + static_cast<std::int64_t>(done), of);
}

/// Room for the converted elements of one block; one for each thread.
template <typename T>
struct Room {
  alignas(64) std::array<T, kBlock> expected;
  alignas(64) std::array<T, kBlock> got;
};

/// As many pairs as could be added where they lie, none where the values must be widened first.
std::size_t add_where_they_lie(Part& part, const Operands& of, std::int64_t begin, std::size_t count) {
  const AddPacked add = find_add_packed();
  const void* expected = of.expected.find_packed(begin);
  const void* got = of.got.find_packed(begin);
  if (add == nullptr || expected == nullptr || got == nullptr) return 0;
  const std::size_t whole = count / kLanes * kLanes;
  const PackedBlock block{expected, of.expected.packing(), got, of.got.packing(), whole, begin};
  return add(part.figures, part.ulps, block, of.bounds, of.scale) ? whole : 0;
}

void add_floats(Part& part, const Operands& of, std::int64_t begin, std::size_t count) {
  thread_local Room<float> room;
  const std::size_t done = add_where_they_lie(part, of, begin, count);
  if (done == count) return;
  const std::int64_t next = begin + static_cast<std::int64_t>(done);
  add_reals(part, of.expected.floats(next, count - done, room.expected.data()),
            of.got.floats(next, count - done, room.got.data()), count - done, next, of);
}

void add_integers(Part& part, const std::int64_t* expected, const std::int64_t* got, std::size_t count,
                  std::int64_t position, const Operands& of) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t distance = distance_of(expected[i], got[i]);
    const auto at = position + static_cast<std::int64_t>(i);
    add_integer_pair(part.figures, expected[i], got[i], distance, of.offset, of.bounds, at);
    ++part.ulps[static_cast<std::size_t>(bucket_of(distance))];
  }
}

bool is_nan(const std::complex<double>& value) { return std::isnan(value.real()) || std::isnan(value.imag()); }
bool is_infinite(const std::complex<double>& value) { return std::isinf(value.real()) || std::isinf(value.imag()); }

std::uint64_t ulps_between(const std::complex<double>& a, const std::complex<double>& b, const UlpScale& scale) {
  return std::max(distance_of(key_of(a.real(), scale), key_of(b.real(), scale)),
                  distance_of(key_of(a.imag(), scale), key_of(b.imag(), scale)));
}

void add_complex(Part& part, const std::complex<double>& expected, const std::complex<double>& got,
                 std::int64_t position, const Operands& of) {
  if (is_nan(expected) || is_nan(got)) {
    part.figures.nan_mismatches += is_nan(expected) != is_nan(got) ? 1 : 0;
  } else if (is_infinite(expected) || is_infinite(got)) {
    part.figures.infinity_mismatches += is_infinite(expected) != is_infinite(got) ? 1 : 0;
  } else {
    const double product = (std::conj(expected) * got).real();
    add_finite(part.figures, std::abs(got - expected), std::abs(expected), product, std::abs(got), of.bounds, position);
    ++part.ulps[static_cast<std::size_t>(bucket_of(ulps_between(expected, got, of.scale)))];
  }
}

void add_elements(Part& part, const Operands& of, std::int64_t begin, std::size_t count) {
  switch (of.arithmetic) {
    case Arithmetic::kFloat:
      return add_floats(part, of, begin, count);
    case Arithmetic::kDouble: {
      thread_local Room<double> room;
      return add_reals(part, of.expected.doubles(begin, count, room.expected.data()),
                       of.got.doubles(begin, count, room.got.data()), count, begin, of);
    }
    case Arithmetic::kInteger: {
      thread_local Room<std::int64_t> room;
      return add_integers(part, of.expected.integers(begin, count, room.expected.data()),
                          of.got.integers(begin, count, room.got.data()), count, begin, of);
    }
    case Arithmetic::kComplex: {
      thread_local Room<std::complex<double>> room;
      const auto* expected = of.expected.complexes(begin, count, room.expected.data());
      const auto* got = of.got.complexes(begin, count, room.got.data());
      for (std::size_t i = 0; i < count; ++i) {
        add_complex(part, expected[i], got[i], begin + static_cast<std::int64_t>(i), of);
      }
    }
  }
}

/// A run of pairs that one thread takes, and what it found there.
struct Chunk {
  std::size_t pair;
  std::int64_t begin;
  std::int64_t end;
  Part part;
};

/// By the number of pairs alone: sums do not depend on the number of threads.
std::int64_t chunk_of(std::int64_t count) {
  constexpr auto block = static_cast<std::int64_t>(kBlock);
  return std::max(kLeastChunk, (count / kMostChunks / block + 1) * block);
}

std::vector<Chunk> chunks_of(const std::vector<Operands>& operands) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int64_t size = chunk_of(operands[i].count);
    for (std::int64_t begin = 0; begin < operands[i].count; begin += size) {
      chunks.push_back({i, begin, std::min(begin + size, operands[i].count), {}});
    }
  }
  return chunks;
}

void run(Chunk& chunk, const Operands& operands) {
  for (std::int64_t begin = chunk.begin; begin < chunk.end; begin += static_cast<std::int64_t>(kBlock)) {
    const auto count = std::min(kBlock, static_cast<std::size_t>(chunk.end - begin));
    add_elements(chunk.part, operands, begin, count);
  }
}

/// Each thread takes the next chunk until none is left; nothing here throws, for the types were looked at before.
void run_all(std::vector<Chunk>& chunks, const std::vector<Operands>& operands) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < chunks.size(); i = next++) run(chunks[i], operands[chunks[i].pair]);
  };
  const auto threads = std::min(chunks.size(), static_cast<std::size_t>(std::max(at::get_num_threads(), 1)));
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

double cosine_of(const Figures& figures) {
  if (figures.sum_expected == 0.0 || figures.sum_got == 0.0) return figures.sum_expected == figures.sum_got ? 1.0 : 0.0;
  return figures.sum_product / std::sqrt(figures.sum_expected) / std::sqrt(figures.sum_got);
}

double signal_to_noise_of(const Figures& figures) {
  if (figures.sum_noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(figures.sum_expected / figures.sum_noise);
}

Comparison finished(const Part& part, std::int64_t count) {
  const Figures& figures = part.figures;
  Comparison result;
  result.count = count;
  result.finite = figures.finite;
  result.over = figures.over;
  result.nan_mismatches = figures.nan_mismatches;
  result.infinity_mismatches = figures.infinity_mismatches;
  result.ulps = part.ulps;
  result.cosine = cosine_of(figures);
  result.signal_to_noise = signal_to_noise_of(figures);

  if (figures.finite == 0) return result;
  result.max_absolute = figures.max_absolute;
  result.max_relative = figures.max_relative;
  result.max_absolute_at = figures.max_absolute_at;
  result.max_relative_at = figures.max_relative_at;
  result.mean_absolute = figures.sum_absolute / static_cast<double>(figures.finite);
  result.mean_relative = figures.sum_relative / static_cast<double>(figures.finite);
  return result;
}

void require_comparable(const Pair& pair) {
  if (pair.expected->shape() != pair.got->shape()) {
    throw InvalidArgument(fmt::format("cannot compare tensors of shapes [{}] and [{}]",
                                      fmt::join(pair.expected->shape(), ", "), fmt::join(pair.got->shape(), ", ")));
  }
  arithmetic_of(pair.expected->aten().scalar_type(), pair.got->aten().scalar_type());
}

std::vector<Comparison> compare_on_host(std::span<const Pair> pairs) {
  std::vector<Operands> operands;
  operands.reserve(pairs.size());  // Elements point into the tensors beside them
  for (const Pair& pair : pairs) operands.emplace_back(pair);
  std::vector<Chunk> chunks = chunks_of(operands);
  run_all(chunks, operands);

  // In the order of the chunks, so that the sums do not depend on which thread was first.
  std::vector<Part> parts(pairs.size());
  for (const Chunk& chunk : chunks) {
    Part& into = parts[chunk.pair];
    merge(into.figures, chunk.part.figures);
    for (std::size_t i = 0; i < kUlpBuckets; ++i) into.ulps[i] += chunk.part.ulps[i];
  }
  std::vector<Comparison> results;
  for (std::size_t i = 0; i < pairs.size(); ++i) results.push_back(finished(parts[i], operands[i].count));
  return results;
}

std::vector<Comparison> compare_on_device(std::span<const Pair> pairs, int device) {
  const std::vector<cuda::DeviceResult> raw = cuda::compare(pairs, device);
  std::vector<Comparison> results;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Part part{raw[i].figures, {}};
    std::copy(std::begin(raw[i].ulps), std::end(raw[i].ulps), part.ulps.begin());
    results.push_back(finished(part, pairs[i].expected->numel()));
  }
  return results;
}

}  // namespace

std::uint64_t Comparison::ulps_at_most() const {
  const auto last = std::find_if(ulps.rbegin(), ulps.rend(), [](std::int64_t pairs) { return pairs > 0; });
  const auto bucket = last == ulps.rend() ? 0 : static_cast<std::size_t>(ulps.rend() - last) - 1;
  return bucket + 1 == kUlpBuckets ? std::numeric_limits<std::uint64_t>::max() : (std::uint64_t{1} << bucket) - 1;
}

std::vector<Comparison> compare(std::span<const Pair> pairs) {
  for (const Pair& pair : pairs) require_comparable(pair);
  if (const std::optional<int> device = cuda::common_device(pairs)) return compare_on_device(pairs, *device);
  return compare_on_host(pairs);
}

Comparison compare(const ir::Tensor& expected, const ir::Tensor& got, Tolerance tolerance) {
  const Pair pair{&expected, &got, tolerance};
  return compare(std::span(&pair, 1)).front();
}

bool has_cuda() { return cuda::device_count() > 0; }

}  // namespace exportguard::validation
