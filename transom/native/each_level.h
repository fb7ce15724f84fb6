// Includes BODY once for each level, every name that it makes with NAME() being another. Once a file.
#include <math.h>

static inline __attribute__((unused)) float float_of_fp16(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    uint32_t wide = rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : (rest << 13) + 0x38000000;
    float value;
    if (rest < 0x0400) {
        value = ldexpf((float)rest, -24);
        return sign ? -value : value;
    }
    wide |= sign;
    __builtin_memcpy(&value, &wide, sizeof value);
    return value;
}

#define PASTE_(name, suffix) name##suffix
#define PASTE(name, suffix) PASTE_(name, suffix)

#define LEVEL 0
#define NAME(name) PASTE(name, _portable)
#include "lanes.h"
#include BODY
#include "lanes_end.h"

#if HAS_X86
#define LEVEL 1
#define NAME(name) PASTE(name, _avx2)
#include "lanes.h"
#include BODY
#include "lanes_end.h"

#define LEVEL 2
#define NAME(name) PASTE(name, _avx512)
#include "lanes.h"
#include BODY
#include "lanes_end.h"

// One of the three functions that NAME(name) made.
#define AT_LEVEL(level, name) ((level) == 2 ? name##_avx512 : (level) == 1 ? name##_avx2 : name##_portable)
#else
#define AT_LEVEL(level, name) ((void)(level), name##_portable)
#endif
