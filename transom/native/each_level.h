// Includes BODY once for each level, every name that it makes with NAME() being another.
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
#define AT_LEVEL(level, name) (name##_portable)
#endif
