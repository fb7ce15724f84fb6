// One panel of outputs, once for each level: VECTORS of them side by side, up to six rows in registers.
enum { NAME(vectors) = LANES == 16 ? 4 : 2 };
#define VECTORS NAME(vectors)
#if LEVEL == 2
enum { PANEL_2 = VECTORS * LANES };
#elif LEVEL == 1
enum { PANEL_1 = VECTORS * LANES };
#else
enum { PANEL_0 = VECTORS * LANES };
#endif

INLINE vf NAME(load_weights)(const char *weights, const int KIND) {
    if (KIND == BFLOAT16) return v_from_bf16((const uint16_t *)weights);
    if (KIND == FLOAT16) return v_from_fp16((const uint16_t *)weights);
    return v_load((const float *)weights);
}

INLINE void NAME(multiply_rows)(const struct matrix *matrix, int64_t panel, const float *x, int64_t x_stride,
                                float *out, const int ROWS, const int KIND) {
    const int64_t vector_bytes = LANES * (KIND == FLOAT32 ? 4 : 2);
    const int64_t first = panel * VECTORS * LANES;
    const int64_t left = matrix->outputs - first;
    const char *weights = (const char *)matrix->weights + first / LANES * matrix->inputs * vector_bytes;
    vf sums[6][4];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        vf start = v_set(0.0f);
        if (matrix->bias && left > v * LANES) {
            float bias[LANES] = {0};
            const int64_t count = left - v * LANES < LANES ? left - v * LANES : LANES;
            __builtin_memcpy(bias, matrix->bias + first + v * LANES, sizeof(float) * (size_t)count);
            start = v_load(bias);
        }
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; row++) sums[row][v] = start;
    }
    for (int64_t k = 0; k < matrix->inputs; k++, weights += VECTORS * vector_bytes) {
        vf weight[4];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            weight[v] = NAME(load_weights)(weights + v * vector_bytes, KIND);
            if (v * vector_bytes % LINE_BYTES == 0) __builtin_prefetch(weights + AHEAD_BYTES + v * vector_bytes);
        }
#pragma GCC unroll 6
        for (int row = 0; row < ROWS; row++) {
            const vf number = v_set(x[row * x_stride + k]);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[row][v] = v_fma(number, weight[v], sums[row][v]);
        }
    }
#pragma GCC unroll 6
    for (int row = 0; row < ROWS; row++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            float *target = out + row * matrix->outputs + first + v * LANES;
            if (left >= (v + 1) * LANES) {
                v_store(target, sums[row][v]);
            } else if (left > v * LANES) {
                float some[LANES];
                v_store(some, sums[row][v]);
                __builtin_memcpy(target, some, sizeof(float) * (size_t)(left - v * LANES));
            }
        }
}

INLINE void NAME(multiply_kind)(const struct matrix *matrix, int64_t panel, const float *x, int64_t x_stride,
                                float *out, int64_t rows, const int KIND) {
    int64_t row = 0;
    for (; row + 6 <= rows; row += 6)
        NAME(multiply_rows)(matrix, panel, x + row * x_stride, x_stride, out + row * matrix->outputs, 6, KIND);
    if (row + 4 <= rows) {
        NAME(multiply_rows)(matrix, panel, x + row * x_stride, x_stride, out + row * matrix->outputs, 4, KIND);
        row += 4;
    }
    for (; row < rows; row++)
        NAME(multiply_rows)(matrix, panel, x + row * x_stride, x_stride, out + row * matrix->outputs, 1, KIND);
}

static TARGET void NAME(multiply_panel)(const struct matrix *matrix, int64_t panel, const float *x, int64_t x_stride,
                                        float *out, int64_t rows) {
    switch (matrix->kind) {
        case BFLOAT16: NAME(multiply_kind)(matrix, panel, x, x_stride, out, rows, BFLOAT16); return;
        case FLOAT16: NAME(multiply_kind)(matrix, panel, x, x_stride, out, rows, FLOAT16); return;
        default: NAME(multiply_kind)(matrix, panel, x, x_stride, out, rows, FLOAT32);
    }
}
#undef VECTORS
