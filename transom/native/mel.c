// Log-mel frames: the transform as two products with cosines and sines, over each frame's even and odd halves.
#include "linear.h"

#include <math.h>

struct log_mel {
    const float *window;           // [length]
    const struct matrix *cosines;  // [half + 1, half + 1]
    const struct matrix *sines;    // [half + 1, half - 1]
    const float *filters;          // of each mel bin, those that are not zero, one bin after the other
    const int32_t *first, *counts; // [bins]: where a bin's filter begins, and how many numbers it has
    int64_t length, hop, bins;
    float smallest_power, smallest_log;
};

// The even half [half + 1] and the odd half [half - 1] of one frame under its window.
static void fold(const struct log_mel *mel, const float *samples, float *even, float *odd) {
    const int64_t half = mel->length / 2;
    even[0] = samples[0] * mel->window[0];
    even[half] = samples[half] * mel->window[half];
    for (int64_t i = 1; i < half; i++) {
        const float left = samples[i] * mel->window[i];
        const float right = samples[mel->length - i] * mel->window[mel->length - i];
        even[i] = left + right;
        odd[i - 1] = left - right;
    }
}

// out [frames, bins] of each window of samples, window_stride apart, whose frames are a hop apart. Scratch holds
// 4 (half + 1) floats for each frame of all windows.
EXPORT void transom_log_mel(const struct log_mel *mel, const float *samples, int64_t windows, int64_t window_stride,
                            int64_t frames, float *scratch, float *out, int level, int num_threads) {
    const int64_t half = mel->length / 2, size = half + 1, rows = windows * frames;
    float *even = scratch, *odd = even + rows * size, *real = odd + rows * size, *imaginary = real + rows * size;
    for (int64_t row = 0; row < rows; row++)
        fold(mel, samples + row / frames * window_stride + row % frames * mel->hop, even + row * size,
             odd + row * (half - 1));
    transom_linear(mel->cosines, even, size, real, rows, level, num_threads);
    transom_linear(mel->sines, odd, half - 1, imaginary, rows, level, num_threads);
    for (int64_t row = 0; row < rows; row++, real += size, imaginary += size) {
        const float *filter = mel->filters;
        for (int64_t i = 0; i < size; i++) real[i] = real[i] * real[i] + imaginary[i] * imaginary[i];
        for (int64_t bin = 0; bin < mel->bins; bin++, out++) {
            float power = 0.0f;
            for (int32_t i = 0; i < mel->counts[bin]; i++) power += *filter++ * real[mel->first[bin] + i];
            power = power < mel->smallest_power ? mel->smallest_power : power;
            const float log = log10f(power);
            *out = ((log < mel->smallest_log ? mel->smallest_log : log) + 4.0f) / 4.0f;
        }
    }
}
