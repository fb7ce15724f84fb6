// One stream's attention over its pages, in place: each chunk of rows is read once for every block of query rows.
// A softmax in one pass: with each chunk the weights so far are scaled to the largest score so far.

// LANES numbers of a row, whatever is stored.
INLINE vf NAME(load_row)(const void *rows, int64_t at, const int kind) {
    if (kind == KIND_INT8) return v_from_int8((const int8_t *)rows + at);
    if (kind == KIND_BF16) return v_from_bf16((const uint16_t *)rows + at);
    if (kind == KIND_FP16) return v_from_fp16((const uint16_t *)rows + at);
    return v_load((const float *)rows + at);
}

// The last count < LANES numbers of a row, zeros behind them: what stands there in memory is another row.
INLINE vf NAME(load_end)(const void *rows, int64_t at, int count, const int kind) {
    char copy[LANES * sizeof(float)] = {0};
    const int size = kind_bytes(kind);
    __builtin_memcpy(copy, (const char *)rows + at * size, (size_t)(count * size));
    return NAME(load_row)(copy, 0, kind);
}

// Adds the products of LANES / M rows' numbers from k on with M queries [M, stride] to sums of a lane each.
INLINE void NAME(add_products)(const struct attention *a, const int64_t *at, int k, int count, const float *queries,
                               int stride, vf *products, const int M, const int kind) {
    vf query[MOST_QUERIES];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++) query[m] = v_load(queries + m * stride + k);
#pragma GCC unroll 16
    for (int i = 0; i < LANES / M; i++) {
        const vf key = count < LANES ? NAME(load_end)(a->keys, at[i] + k, count, kind)
                                     : NAME(load_row)(a->keys, at[i] + k, kind);
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) products[i * M + m] = v_fma(key, query[m], products[i * M + m]);
    }
}

// Scores [rows, M] of M queries [M, stride] against rows of keys; a vector holds LANES / M rows.
INLINE void NAME(score_chunk)(const struct attention *a, const struct chunk *c, int head, const float *queries,
                              int stride, float *scores, const int M, const int kind) {
    const int per_vector = LANES / M, dim = a->head_dim;
    for (int row = 0; row < c->num_rows; row += per_vector) {
        vf products[LANES];
        int64_t at[LANES];
        float scales[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) products[i] = v_set(0.0f);
        for (int i = 0; i < per_vector; i++) {
            const int source = row + i < c->num_rows ? row + i : c->num_rows - 1;
            at[i] = c->rows[source] + (int64_t)head * dim;
            if (kind == KIND_INT8)
                for (int m = 0; m < M; m++) scales[i * M + m] = a->key_scales[c->scales[source] + head];
        }
        int k = 0;
        for (; k + LANES <= dim; k += LANES)
            NAME(add_products)(a, at, k, LANES, queries, stride, products, M, kind);
        if (k < dim) NAME(add_products)(a, at, k, dim - k, queries, stride, products, M, kind);
        vf sums = v_sums(products);
        if (kind == KIND_INT8) sums = sums * v_load(scales);
        v_store(scores + row * M, sums);
    }
}

// Minus infinity where a query does not see a row.
INLINE void NAME(mask_chunk)(const struct chunk *c, const struct sight *s, float *scores, const int M) {
    float offsets[LANES], first[LANES], last[LANES];
    for (int i = 0; i < LANES; i++) {
        offsets[i] = (float)(i / M);
        first[i] = (float)s->first[i % M];
        last[i] = (float)s->last[i % M];
    }
    const vf hidden = v_set(-INFINITY);
    for (int row = 0; row < c->num_rows; row += LANES / M) {
        const vf position = v_load(offsets) + v_set((float)(c->start + row));
        vf score = v_load(scores + row * M);
        score = v_where_less(position, v_load(first), hidden, score);
        v_store(scores + row * M, v_where_less(v_load(last), position, hidden, score));
    }
}

// Scores become weights; maxima and sums [LANES] are one for each of M queries, repeated. Gives what the outputs so
// far must be multiplied by.
INLINE vf NAME(weigh_chunk)(const struct chunk *c, float *scores, float *maxima, float *sums, const int M) {
    const int num_scores = c->num_rows * M;
    const vf before = v_load(maxima);
    vf largest = before, sum = v_set(0.0f);
    for (int i = 0; i < num_scores; i += LANES) largest = v_max(v_load(scores + i), largest);
    float lanes[LANES];
    v_store(lanes, largest);
    for (int i = M; i < LANES; i++) lanes[i % M] = lanes[i] > lanes[i % M] ? lanes[i] : lanes[i % M];
    for (int i = M; i < LANES; i++) lanes[i] = lanes[i % M];
    largest = v_load(lanes);
    for (int i = 0; i < num_scores; i += LANES) {
        const vf weight = v_exp(v_load(scores + i) - largest);
        sum = sum + weight;
        v_store(scores + i, weight);
    }
    const vf shrink = v_exp(before - largest);
    v_store(maxima, largest);
    v_store(sums, v_fma(v_load(sums), shrink, sum));
    return shrink;
}

// Adds the weighted values of a chunk to V vectors from k on of M outputs [M, stride].
INLINE void NAME(mix_part)(const struct attention *a, const struct chunk *c, int64_t head_at, const float *weights,
                           const float *shrink, float *outputs, int stride, int k, int count, const int M,
                           const int V, const int kind) {
    vf mixed[MOST_QUERIES][4];
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) mixed[m][v] = v_load(outputs + m * stride + k + v * LANES) * v_set(shrink[m]);
    for (int row = 0; row < c->num_rows; row++) {
        const int64_t at = c->rows[row] + head_at + k;
        vf value[4];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
            value[v] = count < LANES ? NAME(load_end)(a->values, at, count, kind)
                                     : NAME(load_row)(a->values, at + v * LANES, kind);
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            const vf weight = v_set(weights[row * M + m]);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) mixed[m][v] = v_fma(weight, value[v], mixed[m][v]);
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) v_store(outputs + m * stride + k + v * LANES, mixed[m][v]);
}

INLINE void NAME(mix_chunk)(const struct attention *a, const struct chunk *c, int head, float *weights, vf shrink,
                            float *outputs, int stride, const int M, const int kind) {
    const int dim = a->head_dim;
    enum { WIDE = LANES == 16 || LANES == 4 ? 4 : 2 };
    const int64_t head_at = (int64_t)head * dim;
    float by[LANES];
    v_store(by, shrink);
    if (kind == KIND_INT8)
        for (int row = 0; row < c->num_rows; row++)
            for (int m = 0; m < M; m++) weights[row * M + m] *= a->value_scales[c->scales[row] + head];
    int k = 0;
    for (; k + WIDE * LANES <= dim; k += WIDE * LANES)
        NAME(mix_part)(a, c, head_at, weights, by, outputs, stride, k, LANES, M, WIDE, kind);
    for (; k < dim; k += LANES) NAME(mix_part)(a, c, head_at, weights, by, outputs, stride, k, dim - k, M, 1, kind);
}

// Query rows from first_query on, M of them, of one stream; a query row is one head of one frame or token.
INLINE void NAME(attend_queries)(const struct attention *a, int stream, int first_head, int num_heads,
                                 int first_query, const int M, const int kind) {
    const int dim = a->head_dim, group = a->num_heads / a->num_kv_heads, stride = (dim + LANES - 1) / LANES * LANES;
    const struct sight s = see(a, stream, first_query, M);
    float queries[STATE_FLOATS], outputs[STATE_FLOATS], scores[CHUNK_ROWS * MOST_QUERIES];
    float maxima[MOST_HEADS * LANES], sums[MOST_HEADS * LANES];
    __builtin_memset(queries, 0, sizeof(float) * (size_t)(num_heads * M * stride));
    __builtin_memset(outputs, 0, sizeof(float) * (size_t)(num_heads * M * stride));
    for (int head = 0; head < num_heads; head++) {
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            const float *source = query_row(a, stream, first_head + head, group, first_query + m);
            for (int k = 0; k < dim; k++) queries[(head * M + m) * stride + k] = source[k] * a->scale;
        }
        for (int i = 0; i < LANES; i++) maxima[head * LANES + i] = -FLT_MAX, sums[head * LANES + i] = 0.0f;
    }
    struct chunk c;
    for (int start = s.least; start <= s.most; start += CHUNK_ROWS) {
        find_rows(a, stream, start, s.most + 1, &c);
        const int is_masked = start < s.all_from || start + CHUNK_ROWS - 1 > s.all_to;
        for (int head = 0; head < num_heads; head++) {
            NAME(score_chunk)(a, &c, first_head + head, queries + head * M * stride, stride, scores, M, kind);
            if (is_masked) NAME(mask_chunk)(&c, &s, scores, M);
            const vf shrink = NAME(weigh_chunk)(&c, scores, maxima + head * LANES, sums + head * LANES, M);
            NAME(mix_chunk)(a, &c, first_head + head, scores, shrink, outputs + head * M * stride, stride, M, kind);
        }
    }
    for (int head = 0; head < num_heads; head++)
#pragma GCC unroll 4
        for (int m = 0; m < M; m++) {
            float sum = 0.0f;
            for (int i = m; i < LANES; i += M) sum += sums[head * LANES + i];
            float *target = output_row(a, stream, first_head + head, group, first_query + m);
            for (int k = 0; k < dim; k++)
                target[k] = sum == 0.0f ? 0.0f : outputs[(head * M + m) * stride + k] / sum;
        }
}

#define FOR(kind, M) \
    static TARGET __attribute__((noinline)) void NAME(attend_##kind##_##M)( \
        const struct attention *a, int stream, int first_head, int num_heads, int first_query) { \
        NAME(attend_queries)(a, stream, first_head, num_heads, first_query, M, kind); \
    }
FOR(KIND_FLOAT, 1)
FOR(KIND_FLOAT, 4)
FOR(KIND_INT8, 1)
FOR(KIND_INT8, 4)
FOR(KIND_BF16, 1)
FOR(KIND_BF16, 4)
FOR(KIND_FP16, 1)
FOR(KIND_FP16, 4)
#undef FOR

// Some key/value heads of one stream, all of its query rows: four at a time read each key once.
static TARGET void NAME(attend_stream)(const struct attention *a, int stream, int first_head, int num_heads) {
    typedef void attend_some(const struct attention *, int, int, int, int);
    static attend_some *const one[] = {NAME(attend_KIND_FLOAT_1), NAME(attend_KIND_INT8_1), NAME(attend_KIND_BF16_1),
                                       NAME(attend_KIND_FP16_1)};
    static attend_some *const four[] = {NAME(attend_KIND_FLOAT_4), NAME(attend_KIND_INT8_4),
                                        NAME(attend_KIND_BF16_4), NAME(attend_KIND_FP16_4)};
    const int num_rows = a->query_start[stream + 1] - a->query_start[stream];
    const int num_queries = num_rows * (a->num_heads / a->num_kv_heads);
    int query = 0;
    for (; query + 4 <= num_queries; query += 4) four[a->kind](a, stream, first_head, num_heads, query);
    for (; query < num_queries; query++) one[a->kind](a, stream, first_head, num_heads, query);
}

// One head of a row in 8 bits: see transom/kernels/quantized.py. Gives its scale.
INLINE float NAME(round_head)(const float *numbers, int8_t *codes, int dim) {
    const int whole = dim / LANES * LANES;
    vf most = v_set(0.0f), zero = v_set(0.0f); // NaN instead once a number is not finite: a maximum passes NaN over
    for (int k = 0; k < whole; k += LANES) {
        const vf number = v_load(numbers + k);
        most = v_max(v_max(-number, number), most);
        zero = v_fma(number, v_set(0.0f), zero);
    }
    float lanes[LANES], largest = v_sum(zero);
    v_store(lanes, most);
    for (int i = 0; i < LANES; i++) largest = larger_size(largest, lanes[i]);
    for (int k = whole; k < dim; k++) largest = larger_size(largest, numbers[k]);
    const float scale = largest / 127.0f < 1e-30f ? 1e-30f : largest / 127.0f;
    for (int k = 0; k < whole; k += LANES) v_store_int8(codes + k, v_load(numbers + k) / v_set(scale));
    for (int k = whole; k < dim; k++) codes[k] = (int8_t)(int)rintf(numbers[k] / scale);
    return scale;
}

// New rows [rows, G, K] go to their slots.
static TARGET void NAME(write_rows)(const struct attention *a, const void *rows, int64_t stride, void *pages,
                                    float *scales, const int64_t *slots, int num_rows) {
    const int size = a->num_kv_heads * a->head_dim, bytes = kind_bytes(a->kind);
    for (int row = 0; row < num_rows; row++) {
        if (slots[row] < 0) continue;
        const int64_t page = slots[row] / a->block_rows, offset = slots[row] % a->block_rows;
        const int64_t at = page * a->page_stride + offset * a->row_stride;
        if (a->kind != KIND_INT8) {
            memcpy((char *)pages + at * bytes, (const char *)rows + row * stride * bytes, (size_t)(size * bytes));
            continue;
        }
        float *scale = scales + page * a->scale_page_stride + offset * a->scale_row_stride;
        for (int head = 0; head < a->num_kv_heads; head++)
            scale[head] = NAME(round_head)((const float *)rows + row * stride + head * a->head_dim,
                                           (int8_t *)pages + at + head * a->head_dim, a->head_dim);
    }
}
