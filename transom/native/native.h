// What all sources share: which functions are seen from outside, instruction sets, and threads.
//
// One library runs on every processor of its architecture: each kernel exists once in portable C and, where it pays,
// once for each instruction set, by function attributes. Callers pass the level that transom_level() told them, or a
// lower one. Never compile a file with -march: it would run on the builder's processor only.
#pragma once

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

// In the order of transom.native.library.LEVELS.
enum { LEVEL_PORTABLE = 0, LEVEL_AVX2 = 1, LEVEL_AVX512 = 2 };

// PORTABLE_ONLY: what other architectures compile, for tests.
#if defined(__x86_64__) && !defined(PORTABLE_ONLY)
#define HAS_X86 1
#include <immintrin.h>
#define TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define TARGET_AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#else
#define HAS_X86 0
#endif

EXPORT void transom_ask_for_huge_pages(void *memory, int64_t num_bytes);

// Threads are torch's own: the library is linked to no OpenMP runtime and finds the one that torch has loaded, so
// there is one pool of threads. A parallel loop takes its number of threads from its caller:
//     #pragma omp parallel for num_threads(num_threads) schedule(static) if (num_threads > 1)
