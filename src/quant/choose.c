/* quant/choose.c - see quant/choose.h for the rules. */
#define _GNU_SOURCE /* memmem */
#include "quant/choose.h"

#include <string.h>

#include "base/check.h"

enum { SUPER_ELEMS = 256, SMALL_ELEMS = 32 };

static bool contains(struct str s, const char *part) {
    return memmem(s.ptr, s.len, part, strlen(part)) != NULL;
}

bool choose_converts(struct str name, const uint64_t *dims, uint32_t dim_count) {
    static const char *const kept[] = {"_norm.weight", "ffn_gate_inp.weight",
                                       "position_embd.weight", "token_types.weight"};
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < dim_count; i++) rows *= dims[i];
    if (dim_count < 2 || rows < 2 || !str_ends(name, STR("weight"))) return false;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (contains(name, kept[i])) return false;
    return true;
}

enum dtype choose_fallback(enum dtype type, uint64_t width) {
    static const struct {
        enum dtype from, to;
    } rows[] = {{DTYPE_Q4_K, DTYPE_Q5_0},
                {DTYPE_Q5_K, DTYPE_Q5_1},
                {DTYPE_Q6_K, DTYPE_Q8_0},
                {DTYPE_IQ4_XS, DTYPE_IQ4_NL}};
    if (width % dtype_info(type)->block_elems == 0) return type;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].from == type && width % SMALL_ELEMS == 0) return rows[i].to;
    return DTYPE_F16;
}

enum dtype choose_type(enum dtype type, struct str name, uint64_t width, bool has_output) {
    bool is_output = str_is(name, has_output ? "output.weight" : "token_embd.weight");
    if (!is_output || !dtype_is_quantised(type) || type == DTYPE_Q8_0) return type;
    return width % SUPER_ELEMS == 0 ? DTYPE_Q6_K : DTYPE_Q8_0;
}

uint32_t choose_file_type(enum dtype type) {
    switch (type) {
    case DTYPE_F16:
        return 1;
    case DTYPE_Q4_0:
        return 2;
    case DTYPE_Q4_1:
        return 3;
    case DTYPE_Q8_0:
        return 7;
    case DTYPE_Q5_0:
        return 8;
    case DTYPE_Q5_1:
        return 9;
    case DTYPE_Q4_K:
        return 14;
    case DTYPE_Q5_K:
        return 16;
    case DTYPE_Q6_K:
        return 18;
    case DTYPE_IQ4_NL:
        return 25;
    case DTYPE_IQ4_XS:
        return 30;
    case DTYPE_BF16:
        return 32;
    default:
        CHECK(type == DTYPE_F32); /* others have no encoder */
        return 0;
    }
}
