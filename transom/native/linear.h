// Float32 products: see linear.c.
#pragma once

#include "native.h"

// A packed matrix; its caller keeps the memory. ctypes knows the same fields in the same order.
struct matrix {
    const float *weights; // packed
    const float *bias;    // [outputs] or NULL
    int64_t outputs, inputs;
};

EXPORT void transom_linear(const struct matrix *matrix, const float *x, int64_t x_stride, float *out, int64_t rows,
                           int level, int num_threads);
