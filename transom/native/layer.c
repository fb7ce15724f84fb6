// What a layer does before its attention, and what it does behind it, each in one call. See transom/layers/native_layer.py.
#include "int8.h"
#include "linear.h"
#include "small.h"

// A packed matrix, of floats or of 8 bits: one of the two is NULL.
struct product {
    const struct matrix *floats;
    const struct int8_matrix *steps;
};

// ctypes knows the same fields in the same order.
struct layer {
    const struct norm *attention_norm, *ffn_norm;
    struct product heads, out, up, down; // up gives gates and ups side by side where `gated`
    int64_t size, head_dim, num_heads, num_turned, inner_size;
    int32_t gated, level, num_threads;
};

static int multiply(const struct layer *l, const struct product *p, const float *x, float *out, int64_t rows) {
    if (p->steps) return transom_int8_linear(p->steps, x, out, rows, l->num_threads);
    transom_linear(p->floats, x, p->floats->inputs, out, rows, l->level, l->num_threads);
    return 0;
}

// sum = x + y, and heads [rows, num_heads, head_dim] of its norm; the first num_turned, queries and keys, turned by
// cos and sin [rows, head_dim / 2], or none where they are NULL. Without y, sum is not written. `scratch` has rows of
// `size`. Returns 0, or 1 if there is no memory.
EXPORT int transom_layer_head(const struct layer *l, const float *x, const float *y, const float *cos,
                              const float *sin, float *sum, float *heads, float *scratch, int64_t rows) {
    transom_add_norm(l->attention_norm, x, y, NULL, sum, scratch, rows, l->level);
    if (multiply(l, &l->heads, scratch, heads, rows)) return 1;
    if (cos)
        transom_rotate(heads, l->num_heads * l->head_dim, rows, l->num_turned, l->head_dim, cos, sin, l->level);
    return 0;
}

// sum = x + what the attended rows are projected to, and out, the feed-forward of its norm times scale, or not scaled
// where that is NULL. `scratch` has rows of 2 size + 3 inner_size. Returns 0, or 1 if there is no memory.
EXPORT int transom_layer_tail(const struct layer *l, const float *x, const float *attended, const float *scale,
                              float *sum, float *out, float *scratch, int64_t rows) {
    float *projected = scratch, *normalised = projected + rows * l->size, *inner = normalised + rows * l->size;
    if (multiply(l, &l->out, attended, projected, rows)) return 1;
    transom_add_norm(l->ffn_norm, x, projected, scale, sum, normalised, rows, l->level);
    if (l->gated) {
        float *joint = inner + rows * l->inner_size;
        if (multiply(l, &l->up, normalised, joint, rows)) return 1;
        transom_gated(joint, inner, rows, l->inner_size, l->level);
    } else {
        if (multiply(l, &l->up, normalised, inner, rows)) return 1;
        transom_gelu(inner, rows * l->inner_size, l->level);
    }
    return multiply(l, &l->down, inner, out, rows);
}
