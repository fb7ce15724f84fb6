// Linear layers of float32 rows, for any number of them; weights of 16 bits are widened as they are read. Few rows wait
// for the weights, which are read once and in order; many rows reuse them from the cache. An output adds up its products
// in the order of the inputs whatever rows stand beside it, so a row's bits are its own.
//
// Packed weights: [panels][inputs][PANEL outputs], zeros where the last panel has no output.
#include "linear.h"

#include <stddef.h>

enum { AHEAD_BYTES = 4096, LINE_BYTES = 64 }; // how far ahead weights are asked for, and how many come at a time

#define BODY "linear_body.h"
#include "each_level.h"

// Outputs side by side in the packed weights of a level.
EXPORT int64_t transom_linear_panel(int level) {
#if HAS_X86
    return level == 2 ? PANEL_2 : level == 1 ? PANEL_1 : PANEL_0;
#else
    (void)level;
    return PANEL_0;
#endif
}

// out [rows, outputs] = x W^T + bias, rows of x being x_stride apart.
EXPORT void transom_linear(const struct matrix *matrix, const float *x, int64_t x_stride, float *out, int64_t rows,
                           int level, int num_threads) {
    const int64_t panel = transom_linear_panel(level), panels = (matrix->outputs + panel - 1) / panel;
#pragma omp parallel for num_threads(num_threads) schedule(static) if (num_threads > 1)
    for (int64_t i = 0; i < panels; i++) AT_LEVEL(level, multiply_panel)(matrix, i, x, x_stride, out, rows);
}
