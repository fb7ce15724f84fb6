// Paged attention in place: see transom/kernels/native.py for what the arguments mean.
#include "native.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { KIND_FLOAT = 0, KIND_INT8 = 1, KIND_BF16 = 2, KIND_FP16 = 3 };
enum { CHUNK_ROWS = 64, MOST_QUERIES = 4, MOST_HEADS = 64, STATE_FLOATS = 16384 };

// Strides count elements. Pages are [P, B, G, K], their scales [P, B, G].
struct attention {
    const float *queries;
    float *output;
    const void *keys, *values;
    const float *key_scales, *value_scales;
    const int32_t *query_start, *seq_lens, *block_table;
    int64_t query_stride, page_stride, row_stride, scale_page_stride, scale_row_stride, table_stride;
    int32_t kind, num_streams, num_heads, num_kv_heads, head_dim, block_rows, window;
    float scale;
};

// Rows of the pages, by where they begin, and the first one's position among the stream's keys.
struct chunk {
    int start, num_rows;
    int64_t rows[CHUNK_ROWS], scales[CHUNK_ROWS];
};

// Which keys each query of a block sees, which are seen by any (least to most), and by all (all_from to all_to).
struct sight {
    int first[MOST_QUERIES], last[MOST_QUERIES], least, most, all_from, all_to;
};

static int kind_bytes(int kind) { return kind == KIND_FLOAT ? 4 : kind == KIND_INT8 ? 1 : 2; }

static struct sight see(const struct attention *a, int stream, int first_query, int num_queries) {
    const int group = a->num_heads / a->num_kv_heads, num_keys = a->seq_lens[stream];
    const int standing = num_keys - (a->query_start[stream + 1] - a->query_start[stream]);
    struct sight s = {.least = INT32_MAX, .most = -1, .all_from = 0, .all_to = INT32_MAX};
    for (int m = 0; m < num_queries; m++) {
        const int last = standing + (first_query + m) / group;
        const int first = a->window >= 0 && last >= a->window ? last - a->window + 1 : 0;
        s.first[m] = first;
        s.last[m] = last;
        if (last >= 0 && first < s.least) s.least = first;
        if (last > s.most) s.most = last;
        if (first > s.all_from) s.all_from = first;
        if (last < s.all_to) s.all_to = last;
    }
    return s;
}

static void find_rows(const struct attention *a, int stream, int start, int end, struct chunk *c) {
    const int32_t *pages = a->block_table + stream * a->table_stride;
    c->start = start;
    c->num_rows = end - start < CHUNK_ROWS ? end - start : CHUNK_ROWS;
    for (int row = 0; row < c->num_rows; row++) {
        const int64_t page = pages[(start + row) / a->block_rows], offset = (start + row) % a->block_rows;
        c->rows[row] = page * a->page_stride + offset * a->row_stride;
        c->scales[row] = page * a->scale_page_stride + offset * a->scale_row_stride;
    }
}

// Query rows count the heads of a group first, then frames or tokens.
static const float *query_row(const struct attention *a, int stream, int head, int group, int query) {
    const int64_t row = a->query_start[stream] + query / group;
    return a->queries + row * a->query_stride + (int64_t)(head * group + query % group) * a->head_dim;
}

static float *output_row(const struct attention *a, int stream, int head, int group, int query) {
    const int64_t row = a->query_start[stream] + query / group;
    return a->output + (row * a->num_heads + head * group + query % group) * a->head_dim;
}

// NaN if either is.
static float larger_size(float a, float b) { return a != a || fabsf(b) <= a ? a : fabsf(b); }

#define BODY "attention_body.h"
#include "each_level.h"

// How many heads one task takes: what their queries and outputs need must fit its memory.
static int heads_of_task(const struct attention *a, int num_threads) {
    const int by_memory = STATE_FLOATS / (MOST_QUERIES * ((a->head_dim + 15) / 16 * 16));
    int heads = a->num_kv_heads;
    if (num_threads > 1 && a->num_streams < 2 * num_threads) heads = (heads + num_threads - 1) / num_threads;
    if (heads > by_memory) heads = by_memory;
    return heads < MOST_HEADS ? heads : MOST_HEADS;
}

// Attention of all queries [N, H, K]; a stream's result depends on nothing but its own rows.
EXPORT void transom_attend(const struct attention *a, int level, int num_threads) {
    const int heads = heads_of_task(a, num_threads), parts = (a->num_kv_heads + heads - 1) / heads;
    const int num_tasks = a->num_streams * parts;
#pragma omp parallel for num_threads(num_threads) schedule(dynamic) if (num_threads > 1)
    for (int task = 0; task < num_tasks; task++) {
        const int first = task % parts * heads;
        const int count = first + heads > a->num_kv_heads ? a->num_kv_heads - first : heads;
        AT_LEVEL(level, attend_stream)(a, task / parts, first, count);
    }
}

// Stores new keys and values [num_rows, G, K] at their slots, -1 drops a row. They are of the pages' kind, or float
// for pages of 8 bits.
EXPORT void transom_write(const struct attention *a, const void *keys, int64_t key_stride, const void *values,
                          int64_t value_stride, const int64_t *slots, int num_rows, int level) {
    AT_LEVEL(level, write_rows)(a, keys, key_stride, (void *)a->keys, (float *)a->key_scales, slots, num_rows);
    AT_LEVEL(level, write_rows)(a, values, value_stride, (void *)a->values, (float *)a->value_scales, slots, num_rows);
}
