// What the library says of itself and of the processor it runs on, and what it asks of the system.
#include <sys/mman.h>

#include "native.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

// The best level of this processor.
EXPORT int transom_level(void) {
#if HAS_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return LEVEL_PORTABLE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        return LEVEL_AVX512;
    return LEVEL_AVX2;
#else
    return LEVEL_PORTABLE;
#endif
}

// How many of num_threads run at once: 1 if the library was built without OpenMP.
EXPORT int transom_team(int num_threads) {
    int team = 0;
#pragma omp parallel num_threads(num_threads) if (num_threads > 1) reduction(+ : team)
    team += 1;
    return team;
}

// Ask for huge pages before memory is touched: a matrix that is read once a step costs a page walk for every page.
EXPORT void transom_ask_for_huge_pages(void *memory, int64_t num_bytes) {
#ifdef MADV_HUGEPAGE
    uintptr_t start = ((uintptr_t)memory + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    uintptr_t end = ((uintptr_t)memory + (uintptr_t)num_bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (start < end) (void)madvise((void *)start, end - start, MADV_HUGEPAGE); // a wish: nothing depends on it
#else
    (void)memory, (void)num_bytes;
#endif
}
