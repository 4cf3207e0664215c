#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define EXPORTGUARD_AVX512 1

#include <immintrin.h>

#include "validation/lanes.h"

// Float32 blocks by AVX-512 instructions that the compiler's vector extensions have no word for: counting leading zeros
// gives the bucket of a distance, and shifts by a vector count sixteen buckets in two registers of bytes.
namespace exportguard::validation::avx512 {

#define EXPORTGUARD_AVX512_CODE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,fma,f16c")))

bool is_supported();

EXPORTGUARD_AVX512_CODE bool add_block(Figures& into, Histogram& ulps, const Block<float>& block, const Bounds& bounds,
                                       const UlpScale& scale);

EXPORTGUARD_AVX512_CODE bool add_packed(Figures& into, Histogram& ulps, const PackedBlock& block, const Bounds& bounds,
                                        const UlpScale& scale);

EXPORTGUARD_AVX512_CODE void widen_halves(const std::uint16_t* from, std::size_t count, float* into);

}  // namespace exportguard::validation::avx512

#endif
