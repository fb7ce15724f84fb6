// int8.c's kernels for AVX-512 with VNNI: one instruction multiplies and adds 16 outputs x 4 inputs of a row.
#include "int8.h"

#if HAS_X86

// Sums that wait for one another take four cycles each: few rows need several a row.
#define UNROLL(rows) ((rows) <= 4 ? 4 : (rows) <= 8 ? 2 : 1)

// Many rows keep the processor from looking ahead for the next weights itself; with few, asking costs more than it
// gives.
#define PREFETCH_BYTES 4096
#define PREFETCHES(rows) ((rows) > 8)

// Puts 16 inputs, as four quads, into the place of a row; their steps.
TARGET_AVX512 static inline __m512i place_steps(__m512 x, float inverse, int32_t *place, int64_t rows) {
    __m512i steps = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
    __m128i quads = _mm512_cvtepi32_epi8(steps);
    place[0] = _mm_cvtsi128_si32(quads);
    place[rows] = _mm_extract_epi32(quads, 1);
    place[2 * rows] = _mm_extract_epi32(quads, 2);
    place[3 * rows] = _mm_extract_epi32(quads, 3);
    return steps;
}

TARGET_AVX512 void int8_quantise_avx512(const float *x, int64_t inputs, struct int8_rows *tile, int64_t row) {
    int64_t whole = inputs / 16 * 16, i;
    __mmask16 mask = (__mmask16)((1u << (inputs - whole)) - 1);
    __m512 rest = _mm512_maskz_loadu_ps(mask, x + whole);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_and_si512(_mm512_castps_si512(rest), magnitude);
    for (i = 0; i < whole; i += 16)
        largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
    float inverse;
    int8_row_scale(_mm512_reduce_max_epu32(largest), &tile->scales[row], &inverse);
    tile->sums[row] = 0;
    if (!(inverse > 0.0f)) return;
    __m512i sum = _mm512_setzero_si512();
    int32_t *place = (int32_t *)tile->quads + row;
    for (i = 0; i < whole; i += 16, place += 4 * tile->rows)
        sum = _mm512_add_epi32(sum, place_steps(_mm512_loadu_ps(x + i), inverse, place, tile->rows));
    if (mask) sum = _mm512_add_epi32(sum, place_steps(rest, inverse, place, tile->rows));
    tile->sums[row] = _mm512_reduce_add_epi32(sum);
}

// int8_finish with vectors.
TARGET_AVX512 static inline void finish(
    const struct int8_matrix *matrix, int64_t first, __m512i sums, float row_scale, float *out) {
    int64_t left = matrix->outputs - first;
    __mmask16 mask = left < 16 ? (__mmask16)((1u << left) - 1) : 0xffff;
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_maskz_loadu_ps(mask, matrix->scales + first));
    value = _mm512_mul_ps(value, _mm512_set1_ps(row_scale));
    if (matrix->bias) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, matrix->bias + first));
    _mm512_mask_storeu_ps(out, mask, value);
}

// `rows` is a constant where it is inlined, so that all sums stay in registers.
TARGET_AVX512 static inline __attribute__((always_inline)) void multiply(
    const struct int8_matrix *matrix, int64_t first, const struct int8_rows *tile, float *out, const int rows) {
    const int unroll = UNROLL(rows);
    const uint8_t *weights = int8_block(matrix, first);
    const int32_t *quads = (const int32_t *)tile->quads;
    __m512i sums[INT8_MAX_TILE][4];
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int part = 0; part < unroll; part++)
            sums[row][part] = part ? _mm512_setzero_si512() : _mm512_set1_epi32(-INT8_WEIGHT_OFFSET * tile->sums[row]);
    for (int64_t input = 0; input < tile->padded_inputs; input += INT8_INPUTS * unroll) {
#pragma GCC unroll 4
        for (int part = 0; part < unroll; part++) {
            __m512i block = _mm512_loadu_si512(weights);
            if (PREFETCHES(rows)) _mm_prefetch((const char *)weights + PREFETCH_BYTES, _MM_HINT_T0);
#pragma GCC unroll 16
            for (int row = 0; row < rows; row++)
                sums[row][part] = _mm512_dpbusd_epi32(sums[row][part], block, _mm512_set1_epi32(quads[row]));
            weights += INT8_OUTPUTS * INT8_INPUTS;
            quads += rows;
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++) {
#pragma GCC unroll 4
        for (int part = 1; part < unroll; part++) sums[row][0] = _mm512_add_epi32(sums[row][0], sums[row][part]);
        finish(matrix, first, sums[row][0], tile->scales[row], out + row * matrix->outputs);
    }
}

#define TILE(rows) \
    case rows: \
        multiply(matrix, first, tile, out, rows); \
        return

TARGET_AVX512 void int8_multiply_avx512(
    const struct int8_matrix *matrix, int64_t first, const struct int8_rows *tile, float *out) {
    switch (tile->rows) {
        TILE(1);
        TILE(2);
        TILE(3);
        TILE(4);
        TILE(5);
        TILE(6);
        TILE(7);
        TILE(8);
        TILE(9);
        TILE(10);
        TILE(11);
        TILE(12);
        TILE(13);
        TILE(14);
        TILE(15);
        TILE(16);
    }
}

#endif
