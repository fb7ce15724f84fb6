// Vectors of LANES floats at one level, all functions inlined. Included once for each level by each_level.h, which
// says LEVEL and NAME(). A kernel's body is written once with these and is compiled for every level.
//
// fma() is fused where the processor can; elsewhere it rounds twice. NaN passes through all of them.

#define INLINE static inline __attribute__((always_inline, unused)) TARGET
#define vf NAME(vf)
#define vi NAME(vi)
#define v_load NAME(v_load)
#define v_store NAME(v_store)
#define v_set NAME(v_set)
#define v_fma NAME(v_fma)
#define v_max NAME(v_max)
#define v_where_less NAME(v_where_less)
#define v_round NAME(v_round)
#define v_scale2 NAME(v_scale2)
#define v_sums NAME(v_sums)
#define v_sum NAME(v_sum)
#define v_exp NAME(v_exp)
#define v_erf NAME(v_erf)
#define v_from_int8 NAME(v_from_int8)
#define v_from_bf16 NAME(v_from_bf16)
#define v_from_fp16 NAME(v_from_fp16)
#define v_store_int8 NAME(v_store_int8)

#if LEVEL == 2

#define LANES 16
#define TARGET TARGET_AVX512
typedef __m512 vf;
INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf v_set(float a) { return _mm512_set1_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand where either is NaN.
INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
// yes where a < b, else no.
INLINE vf v_where_less(vf a, vf b, vf yes, vf no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
INLINE vf v_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// a * 2^n of whole n from -127 to 127.
INLINE vf v_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
INLINE vf v_from_int8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vf v_from_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
INLINE vf v_from_fp16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE void v_store_int8(int8_t *p, vf a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
}
// Lane i of the result is the sum of the lanes of a[i].
INLINE vf v_sums(const vf *a) {
    vf quads[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const vf *b = a + 4 * i;
        vf first = _mm512_unpacklo_ps(b[0], b[1]) + _mm512_unpackhi_ps(b[0], b[1]);
        vf second = _mm512_unpacklo_ps(b[2], b[3]) + _mm512_unpackhi_ps(b[2], b[3]);
        quads[i] = (vf)(_mm512_unpacklo_pd((__m512d)first, (__m512d)second)) +
                   (vf)(_mm512_unpackhi_pd((__m512d)first, (__m512d)second));
    }
    vf left = _mm512_shuffle_f32x4(quads[0], quads[1], 0x88) + _mm512_shuffle_f32x4(quads[0], quads[1], 0xdd);
    vf right = _mm512_shuffle_f32x4(quads[2], quads[3], 0x88) + _mm512_shuffle_f32x4(quads[2], quads[3], 0xdd);
    return _mm512_shuffle_f32x4(left, right, 0x88) + _mm512_shuffle_f32x4(left, right, 0xdd);
}
INLINE float v_sum(vf a) { return _mm512_reduce_add_ps(a); }

#elif LEVEL == 1

#define LANES 8
#define TARGET TARGET_AVX2
typedef __m256 vf;
INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE vf v_set(float a) { return _mm256_set1_ps(a); }
INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf v_where_less(vf a, vf b, vf yes, vf no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE vf v_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf v_scale2(vf a, vf n) {
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return a * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
INLINE vf v_from_int8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vf v_from_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE vf v_from_fp16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE void v_store_int8(int8_t *p, vf a) {
    __m256i wide = _mm256_cvtps_epi32(a);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(words, words));
}
INLINE vf v_sums(const vf *a) {
    vf quads[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const vf *b = a + 4 * i;
        vf first = _mm256_unpacklo_ps(b[0], b[1]) + _mm256_unpackhi_ps(b[0], b[1]);
        vf second = _mm256_unpacklo_ps(b[2], b[3]) + _mm256_unpackhi_ps(b[2], b[3]);
        quads[i] = (vf)(_mm256_unpacklo_pd((__m256d)first, (__m256d)second)) +
                   (vf)(_mm256_unpackhi_pd((__m256d)first, (__m256d)second));
    }
    return _mm256_permute2f128_ps(quads[0], quads[1], 0x20) + _mm256_permute2f128_ps(quads[0], quads[1], 0x31);
}
INLINE float v_sum(vf a) {
    __m128 half = _mm256_castps256_ps128(a) + _mm256_extractf128_ps(a, 1);
    half += _mm_movehl_ps(half, half);
    return _mm_cvtss_f32(half) + _mm_cvtss_f32(_mm_shuffle_ps(half, half, 1));
}

#else

#define LANES 4
#define TARGET
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
INLINE vf v_load(const float *p) {
    vf a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
}
INLINE void v_store(float *p, vf a) { __builtin_memcpy(p, &a, sizeof a); }
INLINE vf v_set(float a) { return (vf){a, a, a, a}; }
INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf v_where_less(vf a, vf b, vf yes, vf no) {
    vi mask = a < b;
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
INLINE vf v_max(vf a, vf b) { return v_where_less(b, a, a, b); }
INLINE vf v_round(vf a) {
    return (vf){rintf(a[0]), rintf(a[1]), rintf(a[2]), rintf(a[3])};
}
INLINE vf v_scale2(vf a, vf n) { return a * (vf)((__builtin_convertvector(n, vi) + 127) << 23); }
INLINE vf v_from_int8(const int8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }
INLINE vf v_from_bf16(const uint16_t *p) { return (vf)((vi){p[0], p[1], p[2], p[3]} << 16); }
INLINE vf v_from_fp16(const uint16_t *p) {
    return (vf){float_of_fp16(p[0]), float_of_fp16(p[1]), float_of_fp16(p[2]), float_of_fp16(p[3])};
}
INLINE void v_store_int8(int8_t *p, vf a) {
    for (int i = 0; i < 4; i++) p[i] = (int8_t)rintf(a[i]);
}
INLINE float v_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
INLINE vf v_sums(const vf *a) { return (vf){v_sum(a[0]), v_sum(a[1]), v_sum(a[2]), v_sum(a[3])}; }

#endif

// e^a to 1e-7 of its size; 0 below -87.3, where float32 has no normal numbers left, and infinite above 88.
INLINE vf v_exp(vf a) {
    vf x = v_where_less(v_set(88.0f), a, v_set(88.0f), a);
    vf n = v_round(x * v_set(1.44269504f));
    vf r = v_fma(n, v_set(-0.693145752f), x);
    r = v_fma(n, v_set(-1.42860677e-6f), r);
    vf p = v_set(0.00139485812f);
    p = v_fma(p, r, v_set(0.00837512873f));
    p = v_fma(p, r, v_set(0.0416662171f));
    p = v_fma(p, r, v_set(0.166664153f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    vf tiny = v_set(-87.3f);
    n = v_where_less(x, tiny, v_set(-126.0f), n);
    p = v_where_less(x, tiny, v_set(0.0f), v_scale2(p, n));
    return v_where_less(v_set(88.0f), a, v_set(INFINITY), p);
}

// The error function to 2e-7 of its size: an odd polynomial up to 1, and 1 - e^P(|a|) beyond.
INLINE vf v_erf(vf a) {
    vf size = v_max(-a, a), square = a * a;
    vf near = v_set(7.8824974e-05f);
    near = v_fma(near, square, v_set(-0.00080188555f));
    near = v_fma(near, square, v_set(0.0051893122f));
    near = v_fma(near, square, v_set(-0.026854329f));
    near = v_fma(near, square, v_set(0.11283597f));
    near = v_fma(near, square, v_set(-0.37612626f));
    near = v_fma(near, square, v_set(1.1283791f)) * a;
    vf t = v_where_less(v_set(4.0f), size, v_set(4.0f), size);
    vf far = v_set(1.6140616e-06f);
    far = v_fma(far, t, v_set(-4.5590623e-05f));
    far = v_fma(far, t, v_set(0.00059276953f));
    far = v_fma(far, t, v_set(-0.0047402224f));
    far = v_fma(far, t, v_set(0.026364718f));
    far = v_fma(far, t, v_set(-0.10997824f));
    far = v_fma(far, t, v_set(-0.63193709f));
    far = v_fma(far, t, v_set(-1.1301666f));
    far = v_set(1.0f) - v_exp(v_fma(far, t, v_set(0.00030321296f)));
    far = v_where_less(a, v_set(0.0f), -far, far);
    return v_where_less(size, v_set(1.0f), near, far);
}
