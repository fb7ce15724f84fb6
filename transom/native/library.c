// What the library says of itself and of the processor it runs on.
#include "native.h"

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
