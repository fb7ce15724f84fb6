// y = x W^T + b with W in 8 bits and a scale an output; x is float32 and is rounded here, each row to 127 steps of its
// own maximum on either side of zero. Sums of products are integers, so exact in any order: a row's result depends
// neither on the rows beside it nor on the instruction set.
//
// Packed weights carry an offset of 128 and no sign: the instruction that adds four products up (vpdpbusd) wants one
// side so, and the other, the rows, can then be taken from memory four bytes a row without an instruction of its own.
// The offset's share, 128 times a row's sum, is what the sums start below.
//
// Blocks of 16 outputs lie one after the other, so a pass with few rows reads the matrix from its first byte to its
// last, as memory likes it best.
#include <stdlib.h>
#include <string.h>

#include "int8.h"

#define CHUNK_ROWS 64 // quantised at a time; the weights are read once for them
#define MAX_TILES (CHUNK_ROWS / INT8_MAX_TILE)

// Bytes of a packed matrix.
EXPORT int64_t transom_int8_packed_bytes(int64_t outputs, int64_t inputs) {
    return (outputs + INT8_OUTPUTS - 1) / INT8_OUTPUTS * INT8_OUTPUTS * int8_padded(inputs);
}

// weight [outputs][inputs], from -127 to 127, into packed[transom_int8_packed_bytes].
EXPORT void transom_int8_pack(const int8_t *weight, int64_t outputs, int64_t inputs, uint8_t *packed) {
    int64_t padded = int8_padded(inputs), whole = inputs / INT8_INPUTS * INT8_INPUTS;
    transom_ask_for_huge_pages(packed, transom_int8_packed_bytes(outputs, inputs));
    for (int64_t first = 0; first < outputs; first += INT8_OUTPUTS) {
        for (int64_t input = 0; input < padded; input += INT8_INPUTS) {
            for (int64_t output = first; output < first + INT8_OUTPUTS; output++, packed += INT8_INPUTS) {
                uint32_t quad = 0;
                const int8_t *source = weight + output * inputs + input;
                if (output < outputs && input < whole)
                    memcpy(&quad, source, INT8_INPUTS);
                else if (output < outputs && input < inputs)
                    memcpy(&quad, source, (size_t)(inputs - input));
                quad ^= 0x80808080u;
                memcpy(packed, &quad, INT8_INPUTS);
            }
        }
    }
}

// Rounds to the nearest whole number, to the even one of two, for magnitudes below 2^22.
static inline float nearest(float value) { return (value + 12582912.0f) - 12582912.0f; }

void int8_quantise_portable(const float *x, int64_t inputs, struct int8_rows *tile, int64_t row) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < inputs; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float inverse;
    int8_row_scale(largest, &tile->scales[row], &inverse);
    int32_t sum = 0;
    for (int64_t i = 0; inverse > 0.0f && i < inputs; i++) {
        int8_t step = (int8_t)nearest(x[i] * inverse);
        tile->quads[(i / INT8_INPUTS * tile->rows + row) * INT8_INPUTS + i % INT8_INPUTS] = step;
        sum += step;
    }
    tile->sums[row] = sum;
}

void int8_multiply_portable(
    const struct int8_matrix *matrix, int64_t first, const struct int8_rows *tile, float *out) {
    for (int64_t row = 0; row < tile->rows; row++) {
        const uint8_t *weights = int8_block(matrix, first);
        const int8_t *quad = tile->quads + row * INT8_INPUTS;
        int32_t sums[INT8_OUTPUTS];
        for (int i = 0; i < INT8_OUTPUTS; i++) sums[i] = -INT8_WEIGHT_OFFSET * tile->sums[row];
        for (int64_t input = 0; input < tile->padded_inputs; input += INT8_INPUTS) {
            for (int i = 0; i < INT8_OUTPUTS; i++, weights += INT8_INPUTS)
                sums[i] += weights[0] * quad[0] + weights[1] * quad[1] + weights[2] * quad[2] + weights[3] * quad[3];
            quad += tile->rows * INT8_INPUTS;
        }
        int8_finish(matrix, first, sums, tile->scales[row], out + row * matrix->outputs);
    }
}

static void choose(int32_t level, int8_quantise **quantise, int8_multiply **multiply) {
    *quantise = int8_quantise_portable;
    *multiply = int8_multiply_portable;
#if HAS_X86
    if (level == LEVEL_AVX2) {
        *quantise = int8_quantise_avx2;
        *multiply = int8_multiply_avx2;
    } else if (level == LEVEL_AVX512) {
        *quantise = int8_quantise_avx512;
        *multiply = int8_multiply_avx512;
    }
#else
    (void)level;
#endif
}

// At most CHUNK_ROWS rows, in tiles of nearly the same size; `steps` has room for them.
static void multiply_chunk(
    const struct int8_matrix *matrix, const float *x, float *out, int64_t rows, int8_t *steps, int num_threads) {
    int8_quantise *quantise;
    int8_multiply *multiply;
    choose(matrix->level, &quantise, &multiply);
    struct int8_rows tiles[MAX_TILES];
    int64_t starts[MAX_TILES + 1] = {0};
    int64_t padded = int8_padded(matrix->inputs), num_tiles = (rows + INT8_MAX_TILE - 1) / INT8_MAX_TILE;
    if (padded != matrix->inputs) memset(steps, 0, (size_t)(rows * padded));
    for (int64_t i = 0; i < num_tiles; i++) {
        starts[i + 1] = rows * (i + 1) / num_tiles;
        tiles[i].rows = starts[i + 1] - starts[i];
        tiles[i].padded_inputs = padded;
        tiles[i].quads = steps + starts[i] * padded;
        for (int64_t row = 0; row < tiles[i].rows; row++)
            quantise(x + (starts[i] + row) * matrix->inputs, matrix->inputs, &tiles[i], row);
    }
    (void)num_threads;
#pragma omp parallel for num_threads(num_threads) schedule(static) if (num_threads > 1)
    for (int64_t first = 0; first < matrix->outputs; first += INT8_OUTPUTS)
        for (int64_t i = 0; i < num_tiles; i++)
            multiply(matrix, first, &tiles[i], out + starts[i] * matrix->outputs + first);
}

// x [rows][inputs] -> out [rows][outputs]. Returns 0, or 1 if there is no memory for the rounded rows.
EXPORT int transom_int8_linear(
    const struct int8_matrix *matrix, const float *x, float *out, int64_t rows, int num_threads) {
    int64_t most = rows < CHUNK_ROWS ? rows : CHUNK_ROWS;
    int8_t *steps = malloc((size_t)(most * int8_padded(matrix->inputs)));
    if (!steps) return rows > 0;
    for (int64_t start = 0; start < rows; start += CHUNK_ROWS) {
        int64_t count = rows - start < CHUNK_ROWS ? rows - start : CHUNK_ROWS;
        multiply_chunk(matrix, x + start * matrix->inputs, out + start * matrix->outputs, count, steps, num_threads);
    }
    free(steps);
    return 0;
}
