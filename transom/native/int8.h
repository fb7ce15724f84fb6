// Linear layers with weights of 8 bits: what the instruction sets have in common. See int8.c.
#pragma once

#include <stddef.h>

#include "native.h"

#define INT8_OUTPUTS 16        // a block of outputs: 16 of them x 4 inputs are the 64 bytes of a vector
#define INT8_INPUTS 4          // multiplied and added up by one instruction
#define INT8_INPUT_UNIT 16     // inputs are filled up with zeros to a multiple of it, so loops have no rest
#define INT8_STEPS 127.0f      // on either side of zero, of weights and of activations
#define INT8_WEIGHT_OFFSET 128 // added to packed weights, which are so without a sign
#define INT8_MAX_TILE 16       // rows that one pass over the weights multiplies, at most

// A packed matrix; its caller keeps the memory. ctypes knows the same fields in the same order.
struct int8_matrix {
    const uint8_t *weights; // [blocks][padded inputs / 4][16][4]
    const float *scales;    // [outputs]
    const float *bias;      // [outputs] or NULL
    int64_t outputs;
    int64_t inputs;
    int32_t level;
};

// Rows as integers, for one pass: quads[inputs / 4][rows][4], what a step of each row is worth, and its sum.
struct int8_rows {
    int8_t *quads;
    float scales[INT8_MAX_TILE];
    int32_t sums[INT8_MAX_TILE];
    int64_t rows;
    int64_t padded_inputs;
};

// Quantises one row [inputs] into place `row` of the tile, whose padding is zero already. See quantise_row in int8.c.
typedef void int8_quantise(const float *x, int64_t inputs, struct int8_rows *tile, int64_t row);

// Multiplies the rows of a tile by one block of outputs: out[row * matrix->outputs], the first of them at `first`.
typedef void int8_multiply(const struct int8_matrix *matrix, int64_t first, const struct int8_rows *tile, float *out);

EXPORT int transom_int8_linear(
    const struct int8_matrix *matrix, const float *x, float *out, int64_t rows, int num_threads);

int8_quantise int8_quantise_portable, int8_quantise_avx2, int8_quantise_avx512;
int8_multiply int8_multiply_portable, int8_multiply_avx2, int8_multiply_avx512;

static inline int64_t int8_padded(int64_t inputs) {
    return (inputs + INT8_INPUT_UNIT - 1) / INT8_INPUT_UNIT * INT8_INPUT_UNIT;
}

static inline const uint8_t *int8_block(const struct int8_matrix *matrix, int64_t first) {
    return matrix->weights + first * int8_padded(matrix->inputs);
}

// What a step is worth, and its inverse, from the bits of a row's largest magnitude: they order as the numbers do, with
// what is not finite above all. Such a row gets the scale NaN and the inverse 0; its steps need not be written, for NaN
// comes of whatever they add up to. A row of zeros gets some scale.
static inline void int8_row_scale(uint32_t largest_bits, float *scale, float *inverse) {
    union {
        uint32_t bits;
        float value;
    } largest = {largest_bits};
    if (largest_bits >= 0x7f800000u) {
        *scale = __builtin_nanf("");
        *inverse = 0.0f;
        return;
    }
    float maximum = largest.value > 1e-30f ? largest.value : 1e-30f;
    *scale = maximum / INT8_STEPS;
    *inverse = INT8_STEPS / maximum;
}

// What every instruction set does with the sums of a block, in this order, so that all give the same bits.
static inline __attribute__((always_inline)) void int8_finish(
    const struct int8_matrix *matrix, int64_t first, const int32_t sums[INT8_OUTPUTS], float row_scale, float *out) {
    int64_t left = matrix->outputs - first;
    int64_t count = left < INT8_OUTPUTS ? left : INT8_OUTPUTS;
    for (int64_t i = 0; i < count; i++) {
        float value = (float)sums[i] * matrix->scales[first + i] * row_scale;
        out[i] = matrix->bias ? value + matrix->bias[first + i] : value;
    }
}
