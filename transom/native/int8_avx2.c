// int8.c's kernels for AVX2. Its one instruction for 8 bits adds pairs of products up in 16 bits, where two of 255 x 127
// do not fit. Two of 127 x 127 do, so the weights' signs go over to the rows' side first: three instructions more.
#include "int8.h"

#if HAS_X86

TARGET_AVX2 void int8_quantise_avx2(const float *x, int64_t inputs, struct int8_rows *tile, int64_t row) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    int64_t whole = inputs / 8 * 8;
    __m256i largest = _mm256_setzero_si256();
    for (int64_t i = 0; i < whole; i += 8)
        largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), magnitude));
    float rest[8] = {0};
    for (int64_t i = whole; i < inputs; i++) rest[i - whole] = x[i];
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_loadu_si256((const void *)rest), magnitude));
    uint32_t bits[8], most = 0;
    _mm256_storeu_si256((void *)bits, largest);
    for (int i = 0; i < 8; i++) most = bits[i] > most ? bits[i] : most;
    float inverse;
    int8_row_scale(most, &tile->scales[row], &inverse);
    tile->sums[row] = 0; // not used here
    if (!(inverse > 0.0f)) return;
    int32_t *place = (int32_t *)tile->quads + row;
    for (int64_t i = 0; i < inputs; i += 8, place += 2 * tile->rows) {
        __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(i < whole ? x + i : rest), _mm256_set1_ps(inverse));
        __m256i steps = _mm256_cvtps_epi32(scaled);
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(steps), _mm256_extracti128_si256(steps, 1));
        __m128i quads = _mm_packs_epi16(words, words);
        place[0] = _mm_cvtsi128_si32(quads);
        place[tile->rows] = _mm_extract_epi32(quads, 1);
    }
}

// 8 outputs x 4 inputs of one row added to its sums.
TARGET_AVX2 static inline __m256i add_products(__m256i sums, __m256i magnitudes, __m256i weights, __m256i row) {
    __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(row, weights));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// `rows` is a constant where it is inlined, so that all sums stay in registers.
TARGET_AVX2 static inline __attribute__((always_inline)) void multiply(
    const struct int8_matrix *matrix, int64_t first, const struct int8_rows *tile, int64_t start, float *out,
    const int rows) {
    const __m256i offset = _mm256_set1_epi8((char)INT8_WEIGHT_OFFSET);
    const uint8_t *weights = int8_block(matrix, first);
    const int32_t *quads = (const int32_t *)tile->quads + start;
    __m256i sums[4][2];
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) sums[row][0] = sums[row][1] = _mm256_setzero_si256();
    for (int64_t input = 0; input < tile->padded_inputs; input += INT8_INPUTS) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i block = _mm256_xor_si256(_mm256_loadu_si256((const void *)(weights + 32 * half)), offset);
            __m256i magnitudes = _mm256_abs_epi8(block);
#pragma GCC unroll 4
            for (int row = 0; row < rows; row++)
                sums[row][half] = add_products(sums[row][half], magnitudes, block, _mm256_set1_epi32(quads[row]));
        }
        weights += INT8_OUTPUTS * INT8_INPUTS;
        quads += tile->rows;
    }
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        int32_t found[INT8_OUTPUTS];
        _mm256_storeu_si256((void *)found, sums[row][0]);
        _mm256_storeu_si256((void *)(found + 8), sums[row][1]);
        int8_finish(matrix, first, found, tile->scales[start + row], out + (start + row) * matrix->outputs);
    }
}

TARGET_AVX2 void int8_multiply_avx2(
    const struct int8_matrix *matrix, int64_t first, const struct int8_rows *tile, float *out) {
    int64_t start = 0;
    for (; start + 4 <= tile->rows; start += 4) multiply(matrix, first, tile, start, out, 4);
    if (tile->rows - start == 3) multiply(matrix, first, tile, start, out, 3);
    if (tile->rows - start == 2) multiply(matrix, first, tile, start, out, 2);
    if (tile->rows - start == 1) multiply(matrix, first, tile, start, out, 1);
}

#endif
