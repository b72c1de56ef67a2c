/* quant/nf4.c - see quant/nf4.h for the contract. The roundings of every step are those of
 * bitsandbytes; tests/tools/test_quant_folders.py compares with it. */
#include "quant/nf4.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

const float nf4_table[NF4_TABLE] = {-1.0f,
                                    -0.6961928009986877f,
                                    -0.5250730514526367f,
                                    -0.39491748809814453f,
                                    -0.28444138169288635f,
                                    -0.18477343022823334f,
                                    -0.09105003625154495f,
                                    0.0f,
                                    0.07958029955625534f,
                                    0.16093020141124725f,
                                    0.24611230194568634f,
                                    0.33791524171829224f,
                                    0.44070982933044434f,
                                    0.5626170039176941f,
                                    0.7229568362236023f,
                                    1.0f};

static float clamp_one(float x) { return x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x; }

static float largest(const float *x, size_t count) {
    float most = 0.0f;
    for (size_t i = 0; i < count; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* How many of the borders between neighbours lie below x. */
static uint32_t nf4_code(float x) {
    uint32_t code = 0;
    for (int i = 0; i + 1 < NF4_TABLE; i++) code += (nf4_table[i] + nf4_table[i + 1]) / 2 < x;
    return code;
}

void nf4_encode(const float *x, size_t count, uint8_t *codes, float *absmax) {
    CHECK(count > 0);
    CHECK(count % 2 == 0);
    CHECK(count <= NF4_BLOCK);
    const float least = 1e-38f;
    float most = largest(x, count), floor = most > least ? most : least, inverse = 1.0f / floor;
    bool is_tail = count < NF4_BLOCK; /* bitsandbytes divides there */
    *absmax = is_tail ? floor : most;
    for (size_t i = 0; i < count; i += 2) {
        float a = is_tail ? x[i] / floor : x[i] * inverse;
        float b = is_tail ? x[i + 1] / floor : x[i + 1] * inverse;
        codes[i / 2] = (uint8_t)(nf4_code(clamp_one(a)) << 4 | nf4_code(clamp_one(b)));
    }
}

/* ---- double quantisation ---- */

static int compare_floats(const void *a, const void *b) {
    float x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

/* Number i of n that divide 0.1 to 1 evenly, counted from the nearer end; rounded once, as torch
 * does. */
static float even_step(uint32_t i, uint32_t n) {
    double step = (double)((1.0f - 0.1f) / (float)(n - 1));
    return (float)(i < n / 2 ? (double)0.1f + step * i : 1.0 - step * (n - 1 - i));
}

/* For each power of ten from 10^-6 to 1 the means of twice as many steps as for the one before. */
void nested_table(float table[NESTED_TABLE]) {
    enum { POWERS = 7 };
    static const float power[POWERS] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    uint32_t count = 0;
    for (uint32_t p = 0; p < POWERS; p++) {
        uint32_t n = (1u << p) + 1;
        for (uint32_t i = 0; i + 1 < n; i++) {
            float mean = (even_step(i, n) + even_step(i + 1, n)) / 2.0f;
            table[count++] = power[p] * mean;
            table[count++] = -power[p] * mean;
        }
    }
    table[count++] = 0.0f;
    table[count++] = 1.0f;
    CHECK(count == NESTED_TABLE);
    qsort(table, NESTED_TABLE, sizeof(table[0]), compare_floats);
}

/* bitsandbytes rounds to one of 65,536 steps first and looks up the code of the step. */
static uint8_t nested_code(const float *borders, float x) {
    float place = (clamp_one(x) + 1.0f) * 0.5f * 65535.0f + 0.5f;
    float step = -1.0f + 2.0f * (float)(uint32_t)place / 65535.0f;
    uint32_t low = 0, high = NESTED_TABLE - 1; /* the borders below `low` are less than the step */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (borders[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

float nested_encode(const float *absmax, size_t count, uint8_t *codes, float *scales) {
    float table[NESTED_TABLE], borders[NESTED_TABLE - 1], left[NESTED_BLOCK];
    double sum = 0;
    nested_table(table);
    for (int i = 0; i + 1 < NESTED_TABLE; i++) borders[i] = 0.5f * (table[i] + table[i + 1]);
    for (size_t i = 0; i < count; i++) sum += (double)absmax[i];
    float mean = (float)(sum / (double)count);
    for (size_t at = 0; at < count; at += NESTED_BLOCK) {
        size_t n = count - at < NESTED_BLOCK ? count - at : NESTED_BLOCK;
        for (size_t i = 0; i < n; i++) left[i] = absmax[at + i] - mean;
        float most = largest(left, n), inverse = 1.0f / most;
        for (size_t i = 0; i < n; i++)
            codes[at + i] = most == 0.0f ? 0 : nested_code(borders, left[i] * inverse);
        scales[at / NESTED_BLOCK] = most;
    }
    return mean;
}
