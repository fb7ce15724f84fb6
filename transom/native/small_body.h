// Bodies of small.c, once for each level. What fills no vector is computed in one that is padded.

INLINE vf NAME(load_filled)(const float *p, int64_t count, float filling) {
    if (count >= LANES) return v_load(p);
    float padded[LANES];
    v_store(padded, v_set(filling));
    __builtin_memcpy(padded, p, sizeof(float) * (size_t)count);
    return v_load(padded);
}

INLINE vf NAME(load_some)(const float *p, int64_t count) { return NAME(load_filled)(p, count, 0.0f); }

INLINE void NAME(store_some)(float *p, vf a, int64_t count) {
    if (count >= LANES) {
        v_store(p, a);
        return;
    }
    float padded[LANES];
    v_store(padded, a);
    __builtin_memcpy(p, padded, sizeof(float) * (size_t)count);
}

static TARGET void NAME(add_norm)(const struct norm *norm, const float *x, const float *y, const float *scale,
                                  float *sum, float *out, int64_t rows) {
    const int64_t size = norm->size;
    for (int64_t at = 0; at < rows * size; at += size) {
        const float *row = x + at;
        vf total = v_set(0.0f), squares = v_set(0.0f);
        for (int64_t i = 0; i < size; i += LANES) {
            vf value = NAME(load_some)(row + i, size - i);
            if (y) {
                value = value + NAME(load_some)(y + at + i, size - i);
                NAME(store_some)(sum + at + i, value, size - i);
            }
            total = total + value;
            squares = v_fma(value, value, squares);
        }
        if (y) row = sum + at;
        float mean = 0.0f;
        if (norm->bias) {
            mean = v_sum(total) / (float)size;
            squares = v_set(0.0f);
            for (int64_t i = 0; i < size; i += LANES) {
                const vf value = NAME(load_filled)(row + i, size - i, mean) - v_set(mean);
                squares = v_fma(value, value, squares);
            }
        }
        const vf factor = v_set(1.0f / sqrtf(v_sum(squares) / (float)size + norm->eps));
        for (int64_t i = 0; i < size; i += LANES) {
            const int64_t count = size - i;
            vf value = (NAME(load_some)(row + i, count) - v_set(mean)) * factor * NAME(load_some)(norm->weight + i, count);
            if (norm->bias) value = value + NAME(load_some)(norm->bias + i, count);
            if (scale) value = value * NAME(load_some)(scale + at + i, count);
            NAME(store_some)(out + at + i, value, count);
        }
    }
}

static TARGET void NAME(gelu)(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        const vf value = NAME(load_some)(x + i, count - i);
        const vf erf = v_erf(value * v_set(0.70710678f));
        NAME(store_some)(x + i, value * v_set(0.5f) * (v_set(1.0f) + erf), count - i);
    }
}

static TARGET void NAME(gated)(const float *joint, float *out, int64_t rows, int64_t size) {
    for (int64_t row = 0; row < rows; row++, joint += 2 * size, out += size)
        for (int64_t i = 0; i < size; i += LANES) {
            const vf gate = NAME(load_some)(joint + i, size - i), up = NAME(load_some)(joint + size + i, size - i);
            NAME(store_some)(out + i, gate / (v_set(1.0f) + v_exp(-gate)) * up, size - i);
        }
}

static TARGET void NAME(rotate)(float *x, int64_t stride, int64_t rows, int64_t heads, int64_t dim, const float *cos,
                                const float *sin) {
    const int64_t half = dim / 2;
    for (int64_t row = 0; row < rows; row++, cos += half, sin += half)
        for (int64_t head = 0; head < heads; head++) {
            float *first = x + row * stride + head * dim, *second = first + half;
            for (int64_t i = 0; i < half; i += LANES) {
                const int64_t count = half - i;
                const vf a = NAME(load_some)(first + i, count), b = NAME(load_some)(second + i, count);
                const vf c = NAME(load_some)(cos + i, count), s = NAME(load_some)(sin + i, count);
                NAME(store_some)(first + i, a * c - b * s, count);
                NAME(store_some)(second + i, b * c + a * s, count);
            }
        }
}
