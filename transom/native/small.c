// The small operations between a layer's products, each one pass over its rows. Float32.
#include "small.h"

#include <math.h>
#include <stddef.h>

#define BODY "small_body.h"
#include "each_level.h"

// sum = x + y, and out = norm(sum) * scale; y and scale may be NULL, without y sum is not written. All [rows, size].
EXPORT void transom_add_norm(const struct norm *norm, const float *x, const float *y, const float *scale, float *sum,
                             float *out, int64_t rows, int level) {
    AT_LEVEL(level, add_norm)(norm, x, y, scale, sum, out, rows);
}

// x becomes gelu(x), with the exact error function.
EXPORT void transom_gelu(float *x, int64_t count, int level) { AT_LEVEL(level, gelu)(x, count); }

// out = silu(gate) * up of joint [rows, 2 size], gates first.
EXPORT void transom_gated(const float *joint, float *out, int64_t rows, int64_t size, int level) {
    AT_LEVEL(level, gated)(joint, out, rows, size);
}

// Turns heads [rows, heads, dim], rows `stride` apart, in place by angles cos and sin [rows, dim / 2].
EXPORT void transom_rotate(float *x, int64_t stride, int64_t rows, int64_t heads, int64_t dim, const float *cos,
                           const float *sin, int level) {
    AT_LEVEL(level, rotate)(x, stride, rows, heads, dim, cos, sin);
}

// The index of each row's largest number, the first of equals; -1 for a row with a number that is not finite.
EXPORT void transom_choose(const float *x, int64_t rows, int64_t size, int64_t *chosen) {
    for (int64_t row = 0; row < rows; row++, x += size) {
        int64_t best = 0;
        int is_finite = 1;
        for (int64_t i = 0; i < size; i++) {
            is_finite &= isfinite(x[i]) != 0;
            if (x[i] > x[best]) best = i;
        }
        chosen[row] = is_finite ? best : -1;
    }
}
