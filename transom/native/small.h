// The small operations that other sources call: see small.c.
#pragma once

#include "native.h"

// A norm over rows of `size`; bias NULL is a root mean square norm, else a layer norm with mean and bias.
struct norm {
    const float *weight, *bias;
    int64_t size;
    float eps;
};

EXPORT void transom_add_norm(const struct norm *norm, const float *x, const float *y, const float *scale, float *sum,
                             float *out, int64_t rows, int level);
EXPORT void transom_gelu(float *x, int64_t count, int level);
EXPORT void transom_gated(const float *joint, float *out, int64_t rows, int64_t size, int level);
EXPORT void transom_rotate(float *x, int64_t stride, int64_t rows, int64_t heads, int64_t dim, const float *cos,
                           const float *sin, int level);
