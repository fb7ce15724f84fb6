// Products of float32 rows with weights of 32 or 16 bits: see linear.c.
#pragma once

#include "native.h"

// How weights are stored. In the order of transom.layers.native_float.DTYPES.
enum { FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2 };

// A packed matrix; its caller keeps the memory. ctypes knows the same fields in the same order.
struct matrix {
    const void *weights; // packed
    const float *bias;   // [outputs] or NULL
    int64_t outputs, inputs;
    int32_t kind;
};

EXPORT void transom_linear(const struct matrix *matrix, const float *x, int64_t x_stride, float *out, int64_t rows,
                           int level, int num_threads);
