/* tensor/dtype.c - see tensor/dtype.h for the contract.
 *
 * Every quantised format is decoded once, by its unpack function, into small integers with
 * one scale (and one minimum) for each group; dequantising multiplies these out. That gives
 * the bits of the `gguf` package because a group's scale, the product of a 16-bit float and
 * an integer of at most 8 bits, is exact in float32, so both round at the same two places.
 *
 * Layouts are given beside each function as byte offsets; all numbers are little-endian.
 * "Plane p of 32" means: element e takes its bits from byte e % 32, at bit position p.
 */
#include "tensor/dtype.h"

#include <string.h>

#include "base/bits.h"
#include "base/check.h"
#include "base/size.h"
#include "tensor/fp8.h"

enum {
    SMALL_ELEMS = 32,  /* block of the formats with one scale */
    SUPER_ELEMS = 256, /* block of the formats whose scales are themselves quantised */
    GROUPS_MAX = 16,
};

typedef void unpack_fn(const uint8_t *b, int8_t *q, float *scale, float *min);
typedef void codes_fn(const uint8_t *b, struct dtype_codes *out);

/* What the 16 codes of IQ4_NL and IQ4_XS stand for. */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* The codes of Q6_K are numbers less 32, those of Q4_K and Q5_K the numbers from 0 on. */
enum { Q6_K_LESS = 32 };
static const int8_t number_values[64] = {
    -32, -31, -30, -29, -28, -27, -26, -25, -24, -23, -22, -21, -20, -19, -18, -17,
    -16, -15, -14, -13, -12, -11, -10, -9,  -8,  -7,  -6,  -5,  -4,  -3,  -2,  -1,
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
    16,  17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,  28,  29,  30,  31};

static uint16_t read_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static float read_f16(const uint8_t *p) { return f16_to_f32(read_u16(p)); }

/* Element i < 16 is the low half of byte i, element 16 + i the high half. */
static void unpack_nibbles(const uint8_t *b, int8_t *q) {
    for (int i = 0; i < SMALL_ELEMS / 2; i++) {
        q[i] = (int8_t)(b[i] & 15);
        q[i + SMALL_ELEMS / 2] = (int8_t)(b[i] >> 4);
    }
}

/* Add the fifth bit: bit i of `high` belongs to element i. */
static void add_fifth_bits(const uint8_t *high, int8_t *q) {
    for (int i = 0; i < SMALL_ELEMS; i++) q[i] = (int8_t)(q[i] | (high[i / 8] >> (i % 8) & 1) << 4);
}

static void shift_by(int8_t *q, int elems, int offset) {
    for (int i = 0; i < elems; i++) q[i] = (int8_t)(q[i] - offset);
}

/* 0: scale f16, 2: nibbles. */
static void unpack_q4_0(const uint8_t *b, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = read_f16(b);
    unpack_nibbles(b + 2, q);
    shift_by(q, SMALL_ELEMS, 8);
}

/* 0: scale f16, 2: minimum f16, 4: nibbles. */
static void unpack_q4_1(const uint8_t *b, int8_t *q, float *scale, float *min) {
    scale[0] = read_f16(b);
    min[0] = read_f16(b + 2);
    unpack_nibbles(b + 4, q);
}

/* 0: scale f16, 2: fifth bits, 6: nibbles. */
static void unpack_q5_0(const uint8_t *b, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = read_f16(b);
    unpack_nibbles(b + 6, q);
    add_fifth_bits(b + 2, q);
    shift_by(q, SMALL_ELEMS, 16);
}

/* 0: scale f16, 2: minimum f16, 4: fifth bits, 8: nibbles. */
static void unpack_q5_1(const uint8_t *b, int8_t *q, float *scale, float *min) {
    scale[0] = read_f16(b);
    min[0] = read_f16(b + 2);
    unpack_nibbles(b + 8, q);
    add_fifth_bits(b + 4, q);
}

/* 0: scale f16, 2: 32 int8. */
static void unpack_q8_0(const uint8_t *b, int8_t *q, float *scale, float *min) {
    (void)min;
    scale[0] = read_f16(b);
    memcpy(q, b + 2, SMALL_ELEMS);
}

/* 64 bytes of 2-bit numbers: each run of 128 elements is 32 bytes, four planes of 32. */
static void unpack_pairs(const uint8_t *b, int8_t *q) {
    for (int e = 0; e < SUPER_ELEMS; e++)
        q[e] = (int8_t)(b[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3);
}

/* 0: 16 x (scale, min << 4), 16: 2-bit numbers, 80: scale of scales f16, 82: of minima f16. */
static void unpack_q2_k(const uint8_t *b, int8_t *q, float *scale, float *min) {
    float d = read_f16(b + 80), dmin = read_f16(b + 82);
    for (int g = 0; g < 16; g++) {
        scale[g] = d * (float)(b[g] & 15);
        min[g] = -(dmin * (float)(b[g] >> 4));
    }
    unpack_pairs(b + 16, q);
}

/* 0: third bits, eight planes of 32, where a clear bit means minus four; 32: 2-bit numbers;
 * 96: scales of 6 bits (the low four of scale g in half g / 8 of byte g % 8, the high two at
 * plane g / 4 of the next four bytes); 108: scale of scales f16. */
static void unpack_q3_k(const uint8_t *b, int8_t *q, float *scale, float *min) {
    (void)min;
    const uint8_t *s = b + 96;
    float d = read_f16(b + 108);
    for (int g = 0; g < 16; g++) {
        int low = s[g % 8] >> (g / 8 * 4) & 15;
        int high = s[8 + g % 4] >> (g / 4 * 2) & 3;
        scale[g] = d * (float)((low | high << 4) - 32);
    }
    unpack_pairs(b + 32, q);
    for (int e = 0; e < SUPER_ELEMS; e++)
        if (!(b[e % 32] >> (e / 32) & 1)) q[e] = (int8_t)(q[e] - 4);
}

/* The 12 bytes in which Q4_K and Q5_K keep eight scales and eight minima of 6 bits: the first
 * four are the low 6 bits of bytes 0..3 and 4..7. The other four have their low four bits in
 * bytes 8..11 and their high two bits in the top of bytes 0..3 and 4..7. */
static void codes_of_scales(const uint8_t *b, struct dtype_codes *out) {
    const uint8_t *s = b + 4;
    out->d = read_u16(b);
    out->dmin = read_u16(b + 2);
    for (int g = 0; g < 4; g++) {
        out->scale[g] = (int8_t)(s[g] & 63);
        out->min[g] = (int8_t)(s[4 + g] & 63);
        out->scale[4 + g] = (int8_t)((s[8 + g] & 15) | (s[g] >> 6) << 4);
        out->min[4 + g] = (int8_t)((s[8 + g] >> 4) | (s[4 + g] >> 6) << 4);
    }
}

/* 128 bytes of nibbles: each run of 64 elements is 32 bytes, low halves first. */
static void codes_of_nibbles(const uint8_t *b, struct dtype_codes *out) {
    for (int e = 0; e < SUPER_ELEMS; e++)
        out->code[e] = (uint8_t)(b[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15);
}

/* 0: scale of scales f16, 2: of minima f16, 4: scales and minima, 16: nibbles. */
static void codes_q4_k(const uint8_t *b, struct dtype_codes *out) {
    codes_of_scales(b, out);
    codes_of_nibbles(b + 16, out);
}

/* As Q4_K, with the fifth bits, eight planes of 32, at 16 and the nibbles at 48. */
static void codes_q5_k(const uint8_t *b, struct dtype_codes *out) {
    codes_of_scales(b, out);
    codes_of_nibbles(b + 48, out);
    for (int e = 0; e < SUPER_ELEMS; e++)
        out->code[e] = (uint8_t)(out->code[e] | (b[16 + e % 32] >> (e / 32) & 1) << 4);
}

/* 0: nibbles, 64 bytes for each run of 128, low halves first; 128: the two high bits, 32
 * bytes for each run of 128, four planes of 32; 192: 16 scales int8; 208: scale f16. */
static void codes_q6_k(const uint8_t *b, struct dtype_codes *out) {
    out->d = read_u16(b + 208);
    memcpy(out->scale, b + 192, GROUPS_MAX);
    for (int e = 0; e < SUPER_ELEMS; e++) {
        int low = b[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
        int high = b[128 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        out->code[e] = (uint8_t)(low | high << 4);
    }
}

/* 0: scale f16, 2: nibbles that index iq4_values. */
static void codes_iq4_nl(const uint8_t *b, struct dtype_codes *out) {
    out->d = read_u16(b);
    out->scale[0] = 1;
    unpack_nibbles(b + 2, (int8_t *)out->code);
}

/* 0: scale of scales f16; 2: the two high bits of eight scales; 4: their low four bits;
 * 8: eight groups of 16 bytes of nibbles as in IQ4_NL. */
static void codes_iq4_xs(const uint8_t *b, struct dtype_codes *out) {
    int high_bits = read_u16(b + 2);
    out->d = read_u16(b);
    for (int g = 0; g < 8; g++) {
        int low = b[4 + g / 2] >> (g % 2 * 4) & 15;
        int high = high_bits >> (2 * g) & 3;
        out->scale[g] = (int8_t)((low | high << 4) - 32);
        unpack_nibbles(b + 8 + g * 16, (int8_t *)out->code + g * SMALL_ELEMS);
    }
}

/* 0: scale f16, 2: zero point int8, 3: nibbles. */
static void codes_int4(const uint8_t *b, struct dtype_codes *out) {
    out->d = out->dmin = read_u16(b);
    out->scale[0] = 1;
    out->min[0] = (int8_t)b[2];
    unpack_nibbles(b + 3, (int8_t *)out->code);
}

/* 0: scale f32, 4: 32 int8. */
static void unpack_int8(const uint8_t *b, int8_t *q, float *scale, float *min) {
    (void)min;
    memcpy(scale, b, sizeof(*scale));
    memcpy(q, b + 4, SMALL_ELEMS);
}

/* 0: scale f16, 2: zero point int16 of -255 .. 255, 4: 32 int8. */
static void unpack_int8_z(const uint8_t *b, int8_t *q, float *scale, float *min) {
    scale[0] = read_f16(b);
    min[0] = -(scale[0] * (float)(int16_t)read_u16(b + 2));
    memcpy(q, b + 4, SMALL_ELEMS);
}

/* What the codes of NF4 stand for, in units of scale: the published numbers times 112.03, rounded.
 * Of all tables of whole numbers up to 127 this one with its unit, nf4_unit in format/, is nearest
 * to the published one: 0.3 % off (root mean square). */
static const int8_t nf4_values[16] = {-112, -78, -59, -44, -32, -21, -10, 0,
                                      9,    18,  28,  38,  49,  63,  81,  112};

/* FP4's numbers times 120: exact but for the least one, 0.625. */
static const int8_t fp4_values[16] = {0, 1,  80,  120,  40,  60,  20,  30,
                                      0, -1, -80, -120, -40, -60, -20, -30};

/* 0: scale f32, 4: nibbles that index nf4_values or fp4_values. */
static void codes_table4(const uint8_t *b, struct dtype_codes *out) {
    memcpy(&out->wide_d, b, sizeof(out->wide_d));
    out->scale[0] = 1;
    unpack_nibbles(b + 4, (int8_t *)out->code);
}

struct layout {
    struct dtype_info info;
    unpack_fn *unpack;    /* formats with integers have this */
    codes_fn *codes;      /* or this */
    const int8_t *values; /* what the codes stand for */
};

static const struct layout layouts[DTYPE_COUNT] = {
    [DTYPE_F32] = {.info = {"F32", 1, 4, 0, false}},
    [DTYPE_F16] = {.info = {"F16", 1, 2, 0, false}},
    [DTYPE_BF16] = {.info = {"BF16", 1, 2, 0, false}},
    [DTYPE_Q4_0] = {{"Q4_0", 32, 18, 32, false}, .unpack = unpack_q4_0},
    [DTYPE_Q4_1] = {{"Q4_1", 32, 20, 32, true}, .unpack = unpack_q4_1},
    [DTYPE_Q5_0] = {{"Q5_0", 32, 22, 32, false}, .unpack = unpack_q5_0},
    [DTYPE_Q5_1] = {{"Q5_1", 32, 24, 32, true}, .unpack = unpack_q5_1},
    [DTYPE_Q8_0] = {{"Q8_0", 32, 34, 32, false}, .unpack = unpack_q8_0},
    [DTYPE_Q2_K] = {{"Q2_K", 256, 84, 16, true}, .unpack = unpack_q2_k},
    [DTYPE_Q3_K] = {{"Q3_K", 256, 110, 16, false}, .unpack = unpack_q3_k},
    [DTYPE_Q4_K] = {{"Q4_K", 256, 144, 32, true}, NULL, codes_q4_k, number_values + Q6_K_LESS},
    [DTYPE_Q5_K] = {{"Q5_K", 256, 176, 32, true}, NULL, codes_q5_k, number_values + Q6_K_LESS},
    [DTYPE_Q6_K] = {{"Q6_K", 256, 210, 16, false}, NULL, codes_q6_k, number_values},
    [DTYPE_IQ4_NL] = {{"IQ4_NL", 32, 18, 32, false}, NULL, codes_iq4_nl, iq4_values},
    [DTYPE_IQ4_XS] = {{"IQ4_XS", 256, 136, 32, false}, NULL, codes_iq4_xs, iq4_values},
    [DTYPE_INT4] = {{"INT4", 32, 19, 32, true}, NULL, codes_int4, number_values + Q6_K_LESS},
    [DTYPE_INT8] = {{"INT8", 32, 36, 32, false}, .unpack = unpack_int8},
    [DTYPE_INT8_Z] = {{"INT8_Z", 32, 36, 32, true}, .unpack = unpack_int8_z},
    [DTYPE_NF4] = {{"NF4", 32, 20, 32, false}, NULL, codes_table4, nf4_values},
    [DTYPE_FP4] = {{"FP4", 32, 20, 32, false}, NULL, codes_table4, fp4_values},
    [DTYPE_F8] = {.info = {"F8_E4M3", SMALL_ELEMS, 36, 0, false}},
};

const struct dtype_info *dtype_info(enum dtype type) {
    CHECK((unsigned)type < DTYPE_COUNT);
    return &layouts[type].info;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool same_name(struct str a, struct str b) {
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower(a.ptr[i]) != lower(b.ptr[i])) return false;
    return true;
}

bool dtype_find(struct str name, enum dtype *out) {
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!same_name(name, str_of(layouts[type].info.name))) continue;
        *out = (enum dtype)type;
        return true;
    }
    return false;
}

bool dtype_is_quantised(enum dtype type) { return dtype_info(type)->block_elems > 1; }

bool dtype_has_integers(enum dtype type) { return dtype_info(type)->group_elems > 0; }

bool dtype_bytes(enum dtype type, uint64_t elems, size_t *out) {
    const struct dtype_info *info = dtype_info(type);
    if (elems % info->block_elems != 0) return false;
    uint64_t blocks = elems / info->block_elems;
    return blocks <= SIZE_MAX && size_mul((size_t)blocks, info->block_bytes, out);
}

bool dtype_has_codes(enum dtype type) {
    CHECK((unsigned)type < DTYPE_COUNT);
    return layouts[type].codes != NULL;
}

void dtype_unpack_codes(enum dtype type, const void *block, struct dtype_codes *out) {
    CHECK(dtype_has_codes(type));
    layouts[type].codes(block, out);
}

const int8_t *dtype_code_values(enum dtype type) {
    CHECK(dtype_has_codes(type));
    return layouts[type].values;
}

/* The codes multiplied out. A product is exact: 11 bits of an f16 times 8, or an f32 times 1. */
static void unpack_coded(const struct layout *l, const uint8_t *block, int8_t *q, float *scale,
                         float *min) {
    struct dtype_codes c;
    uint32_t groups = l->info.block_elems / l->info.group_elems;
    CHECK(groups > 0);
    l->codes(block, &c);
    float d = l->codes == codes_table4 ? c.wide_d : f16_to_f32(c.d);
    for (uint32_t i = 0; i < l->info.block_elems; i++) q[i] = l->values[c.code[i]];
    for (uint32_t g = 0; g < groups; g++) {
        scale[g] = d * (float)c.scale[g];
        if (l->info.has_min) min[g] = -(f16_to_f32(c.dmin) * (float)c.min[g]);
    }
}

static void unpack_block(const struct layout *l, const uint8_t *block, int8_t *q, float *scale,
                         float *min) {
    if (l->codes)
        unpack_coded(l, block, q, scale, min);
    else
        l->unpack(block, q, scale, min);
}

void dtype_unpack(enum dtype type, const void *block, int8_t *q, float *scale, float *min) {
    const struct dtype_info *info = dtype_info(type);
    CHECK(dtype_has_integers(type));
    if (!info->has_min)
        for (uint32_t g = 0; g < info->block_elems / info->group_elems; g++) min[g] = 0.0f;
    unpack_block(&layouts[type], block, q, scale, min);
}

static void dequant_block(const struct layout *l, const uint8_t *block, float *dst) {
    const struct dtype_info *info = &l->info;
    int8_t q[SUPER_ELEMS];
    float scale[GROUPS_MAX], min[GROUPS_MAX];
    unpack_block(l, block, q, scale, min);
    for (uint32_t i = 0; i < info->block_elems; i++) dst[i] = scale[i / info->group_elems] * q[i];
    if (!info->has_min) return; /* adding zero would lose the sign of -0 */
    for (uint32_t i = 0; i < info->block_elems; i++) dst[i] += min[i / info->group_elems];
}

static void dequant_f16(const uint8_t *src, size_t elems, float *dst) {
    for (size_t i = 0; i < elems; i++) dst[i] = f16_to_f32(read_u16(src + 2 * i));
}

static void dequant_bf16(const uint8_t *src, size_t elems, float *dst) {
    for (size_t i = 0; i < elems; i++) dst[i] = bf16_to_f32(read_u16(src + 2 * i));
}

/* 0: scale f32, 4: 32 codes. */
static void dequant_f8(const uint8_t *src, size_t elems, float *dst) {
    for (size_t i = 0; i < elems; i += SMALL_ELEMS, src += sizeof(float) + SMALL_ELEMS) {
        float scale;
        memcpy(&scale, src, sizeof(scale));
        for (size_t k = 0; k < SMALL_ELEMS; k++)
            dst[i + k] = fp8_to_f32(src[sizeof(scale) + k]) * scale;
    }
}

void dtype_dequant(enum dtype type, const void *src, size_t elems, float *dst) {
    const struct layout *l = &layouts[type];
    CHECK((unsigned)type < DTYPE_COUNT);
    CHECK(elems % l->info.block_elems == 0);
    if (elems == 0) return;
    if (type == DTYPE_F32) {
        memcpy(dst, src, elems * sizeof(*dst));
    } else if (type == DTYPE_F16) {
        dequant_f16(src, elems, dst);
    } else if (type == DTYPE_BF16) {
        dequant_bf16(src, elems, dst);
    } else if (type == DTYPE_F8) {
        dequant_f8(src, elems, dst);
    } else {
        const uint8_t *block = src;
        for (size_t i = 0; i < elems; i += l->info.block_elems, block += l->info.block_bytes)
            dequant_block(l, block, dst + i);
    }
}

/* Integers only, so that flush-to-zero does not change the result. A NaN becomes a quiet one
 * with the same payload, as in the processor's own conversion. */
float f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, fraction = half & 0x3FF;
    if (exponent == 31) /* infinity or NaN */
        return float_of_bits(sign | 0x7F800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    if (!fraction) return float_of_bits(sign);
    /* Subnormal: fraction * 2^-24. Its highest bit becomes the hidden one. */
    uint32_t top = 31 - (uint32_t)__builtin_clz(fraction);
    return float_of_bits(sign | (top + 103) << 23 | (fraction << (23 - top) & 0x7FFFFF));
}

/* value >> drop, to nearest, ties to even; 0 < drop < 32. */
static uint32_t round_shift(uint32_t value, uint32_t drop) {
    uint32_t half = 1u << (drop - 1);
    uint32_t rest = value & (2 * half - 1), kept = value >> drop;
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t f16_from_f32(float value) {
    uint32_t bits = bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (rest >> 13 & 0x3FF)); /* NaN */
    if (rest >= 0x47800000) return (uint16_t)(sign | 0x7C00);                       /* 2^16 */
    /* A carry out of the fraction goes into the exponent, up to infinity, which is correct. */
    if (rest >= 0x38800000) return (uint16_t)(sign | (round_shift(rest, 13) - (112u << 10)));
    if (rest < 0x33000000) return (uint16_t)sign; /* below half of the least subnormal, 2^-25 */
    uint32_t exponent = rest >> 23, fraction = (rest & 0x7FFFFF) | 0x800000;
    return (uint16_t)(sign | round_shift(fraction, 126 - exponent));
}

float bf16_to_f32(uint16_t half) { return float_of_bits((uint32_t)half << 16); }

uint16_t bf16_from_f32(float value) {
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40); /* quiet NaN */
    return (uint16_t)round_shift(bits, 16);
}
