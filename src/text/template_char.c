/* text/template_char.c - see text/template_char.h for the contract. */
#include "text/template_char.h"

#include <utf8proc.h>

#include "base/buf.h"
#include "base/utf8.h"

struct span {
    uint32_t first, last;
};

/* Lower case though not of category Ll, and likewise upper; from the Unicode database. */
static const struct span other_lower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
    {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
    {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
    {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
};

static const struct span other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
};

/* Digits that are not decimal: superscripts, circled numbers and their kind. */
static const struct span other_digit[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

/* Ideographs with a numeric value. */
static const struct span other_numeric[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382A, 0x382A},   {0x3B4D, 0x3B4D},
    {0x4E00, 0x4E00},   {0x4E03, 0x4E03},   {0x4E07, 0x4E07},   {0x4E09, 0x4E09},
    {0x4E5D, 0x4E5D},   {0x4E8C, 0x4E8C},   {0x4E94, 0x4E94},   {0x4E96, 0x4E96},
    {0x4EBF, 0x4EC0},   {0x4EDF, 0x4EDF},   {0x4EE8, 0x4EE8},   {0x4F0D, 0x4F0D},
    {0x4F70, 0x4F70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516B, 0x516B},   {0x516D, 0x516D},   {0x5341, 0x5341},   {0x5343, 0x5345},
    {0x534C, 0x534C},   {0x53C1, 0x53C4},   {0x56DB, 0x56DB},   {0x58F1, 0x58F1},
    {0x58F9, 0x58F9},   {0x5E7A, 0x5E7A},   {0x5EFE, 0x5EFF},   {0x5F0C, 0x5F0E},
    {0x5F10, 0x5F10},   {0x62FE, 0x62FE},   {0x634C, 0x634C},   {0x67D2, 0x67D2},
    {0x6F06, 0x6F06},   {0x7396, 0x7396},   {0x767E, 0x767E},   {0x8086, 0x8086},
    {0x842C, 0x842C},   {0x8CAE, 0x8CAE},   {0x8CB3, 0x8CB3},   {0x8D30, 0x8D30},
    {0x9621, 0x9621},   {0x9646, 0x9646},   {0x964C, 0x964C},   {0x9678, 0x9678},
    {0x96F6, 0x96F6},   {0xF96B, 0xF96B},   {0xF973, 0xF973},   {0xF978, 0xF978},
    {0xF9B2, 0xF9B2},   {0xF9D1, 0xF9D1},   {0xF9D3, 0xF9D3},   {0xF9FD, 0xF9FD},
    {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200E2, 0x200E2}, {0x20121, 0x20121},
    {0x2092A, 0x2092A}, {0x20983, 0x20983}, {0x2098C, 0x2098C}, {0x2099C, 0x2099C},
    {0x20AEA, 0x20AEA}, {0x20AFD, 0x20AFD}, {0x20B19, 0x20B19}, {0x22390, 0x22390},
    {0x22998, 0x22998}, {0x23B1B, 0x23B1B}, {0x2626D, 0x2626D}, {0x2F890, 0x2F890},
};

/* Characters whose upper or title case is several characters (SpecialCasing.txt). */
struct special_case {
    uint32_t code;
    const char *upper, *title;
};

static const struct special_case special_cases[] = {
    {0xDF, "SS", "Ss"},   {0x149, "ʼN", "ʼN"},    {0x1F0, "J̌", "J̌"},      {0x390, "Ϊ́", "Ϊ́"},
    {0x3B0, "Ϋ́", "Ϋ́"},    {0x587, "ԵՒ", "Եւ"},    {0x1E96, "H̱", "H̱"},     {0x1E97, "T̈", "T̈"},
    {0x1E98, "W̊", "W̊"},   {0x1E99, "Y̊", "Y̊"},     {0x1E9A, "Aʾ", "Aʾ"},   {0x1F50, "Υ̓", "Υ̓"},
    {0x1F52, "Υ̓̀", "Υ̓̀"},   {0x1F54, "Υ̓́", "Υ̓́"},     {0x1F56, "Υ̓͂", "Υ̓͂"},     {0x1F80, "ἈΙ", "ᾈ"},
    {0x1F81, "ἉΙ", "ᾉ"},  {0x1F82, "ἊΙ", "ᾊ"},    {0x1F83, "ἋΙ", "ᾋ"},    {0x1F84, "ἌΙ", "ᾌ"},
    {0x1F85, "ἍΙ", "ᾍ"},  {0x1F86, "ἎΙ", "ᾎ"},    {0x1F87, "ἏΙ", "ᾏ"},    {0x1F88, "ἈΙ", "ᾈ"},
    {0x1F89, "ἉΙ", "ᾉ"},  {0x1F8A, "ἊΙ", "ᾊ"},    {0x1F8B, "ἋΙ", "ᾋ"},    {0x1F8C, "ἌΙ", "ᾌ"},
    {0x1F8D, "ἍΙ", "ᾍ"},  {0x1F8E, "ἎΙ", "ᾎ"},    {0x1F8F, "ἏΙ", "ᾏ"},    {0x1F90, "ἨΙ", "ᾘ"},
    {0x1F91, "ἩΙ", "ᾙ"},  {0x1F92, "ἪΙ", "ᾚ"},    {0x1F93, "ἫΙ", "ᾛ"},    {0x1F94, "ἬΙ", "ᾜ"},
    {0x1F95, "ἭΙ", "ᾝ"},  {0x1F96, "ἮΙ", "ᾞ"},    {0x1F97, "ἯΙ", "ᾟ"},    {0x1F98, "ἨΙ", "ᾘ"},
    {0x1F99, "ἩΙ", "ᾙ"},  {0x1F9A, "ἪΙ", "ᾚ"},    {0x1F9B, "ἫΙ", "ᾛ"},    {0x1F9C, "ἬΙ", "ᾜ"},
    {0x1F9D, "ἭΙ", "ᾝ"},  {0x1F9E, "ἮΙ", "ᾞ"},    {0x1F9F, "ἯΙ", "ᾟ"},    {0x1FA0, "ὨΙ", "ᾨ"},
    {0x1FA1, "ὩΙ", "ᾩ"},  {0x1FA2, "ὪΙ", "ᾪ"},    {0x1FA3, "ὫΙ", "ᾫ"},    {0x1FA4, "ὬΙ", "ᾬ"},
    {0x1FA5, "ὭΙ", "ᾭ"},  {0x1FA6, "ὮΙ", "ᾮ"},    {0x1FA7, "ὯΙ", "ᾯ"},    {0x1FA8, "ὨΙ", "ᾨ"},
    {0x1FA9, "ὩΙ", "ᾩ"},  {0x1FAA, "ὪΙ", "ᾪ"},    {0x1FAB, "ὫΙ", "ᾫ"},    {0x1FAC, "ὬΙ", "ᾬ"},
    {0x1FAD, "ὭΙ", "ᾭ"},  {0x1FAE, "ὮΙ", "ᾮ"},    {0x1FAF, "ὯΙ", "ᾯ"},    {0x1FB2, "ᾺΙ", "Ὰͅ"},
    {0x1FB3, "ΑΙ", "ᾼ"},  {0x1FB4, "ΆΙ", "Άͅ"},    {0x1FB6, "Α͂", "Α͂"},     {0x1FB7, "Α͂Ι", "ᾼ͂"},
    {0x1FBC, "ΑΙ", "ᾼ"},  {0x1FC2, "ῊΙ", "Ὴͅ"},    {0x1FC3, "ΗΙ", "ῌ"},    {0x1FC4, "ΉΙ", "Ήͅ"},
    {0x1FC6, "Η͂", "Η͂"},   {0x1FC7, "Η͂Ι", "ῌ͂"},    {0x1FCC, "ΗΙ", "ῌ"},    {0x1FD2, "Ϊ̀", "Ϊ̀"},
    {0x1FD3, "Ϊ́", "Ϊ́"},   {0x1FD6, "Ι͂", "Ι͂"},     {0x1FD7, "Ϊ͂", "Ϊ͂"},     {0x1FE2, "Ϋ̀", "Ϋ̀"},
    {0x1FE3, "Ϋ́", "Ϋ́"},   {0x1FE4, "Ρ̓", "Ρ̓"},     {0x1FE6, "Υ͂", "Υ͂"},     {0x1FE7, "Ϋ͂", "Ϋ͂"},
    {0x1FF2, "ῺΙ", "Ὼͅ"},  {0x1FF3, "ΩΙ", "ῼ"},    {0x1FF4, "ΏΙ", "Ώͅ"},    {0x1FF6, "Ω͂", "Ω͂"},
    {0x1FF7, "Ω͂Ι", "ῼ͂"},  {0x1FFC, "ΩΙ", "ῼ"},    {0xFB00, "FF", "Ff"},   {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"}, {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"}, {0xFB13, "ՄՆ", "Մն"},   {0xFB14, "ՄԵ", "Մե"},   {0xFB15, "ՄԻ", "Մի"},
    {0xFB16, "ՎՆ", "Վն"}, {0xFB17, "ՄԽ", "Մխ"},
};

static bool in_spans(const struct span *spans, size_t count, uint32_t code) {
    for (size_t i = 0; i < count && spans[i].first <= code; i++)
        if (code <= spans[i].last) return true;
    return false;
}
#define IN_SPANS(spans, code) in_spans(spans, sizeof(spans) / sizeof((spans)[0]), code)

static utf8proc_category_t category(uint32_t code) {
    return utf8proc_category((utf8proc_int32_t)code);
}

bool jinja_char_is_space(uint32_t code) {
    if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
    return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
           code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool jinja_char_is_alpha(uint32_t code) {
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool jinja_char_is_decimal(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }

bool jinja_char_is_digit(uint32_t code) {
    return jinja_char_is_decimal(code) || IN_SPANS(other_digit, code);
}

bool jinja_char_is_numeric(uint32_t code) {
    utf8proc_category_t c = category(code);
    if (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) return true;
    return IN_SPANS(other_numeric, code);
}

bool jinja_char_is_alnum(uint32_t code) {
    return jinja_char_is_alpha(code) || jinja_char_is_numeric(code);
}

bool jinja_char_is_lower(uint32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LL || IN_SPANS(other_lower, code);
}

bool jinja_char_is_upper(uint32_t code) {
    return category(code) == UTF8PROC_CATEGORY_LU || IN_SPANS(other_upper, code);
}

bool jinja_char_is_title(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LT; }

bool jinja_char_is_cased(uint32_t code) {
    return jinja_char_is_lower(code) || jinja_char_is_upper(code) || jinja_char_is_title(code);
}

bool jinja_char_is_printable(uint32_t code) {
    if (code == ' ') return true;
    switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

static const struct special_case *special_find(uint32_t code) {
    if (code < 0xDF) return NULL;
    for (size_t i = 0; i < sizeof(special_cases) / sizeof(special_cases[0]); i++)
        if (special_cases[i].code == code) return &special_cases[i];
    return NULL;
}

static void put_code(struct buf *out, uint32_t code) {
    char bytes[4];
    buf_put(out, bytes, utf8_encode(code, bytes));
}

void jinja_put_upper(struct buf *out, uint32_t code) {
    const struct special_case *special = special_find(code);
    if (special)
        buf_put_text(out, special->upper);
    else
        put_code(out, (uint32_t)utf8proc_toupper((utf8proc_int32_t)code));
}

void jinja_put_title(struct buf *out, uint32_t code) {
    const struct special_case *special = special_find(code);
    if (special)
        buf_put_text(out, special->title);
    else
        put_code(out, (uint32_t)utf8proc_totitle((utf8proc_int32_t)code));
}

void jinja_put_casefold(struct buf *out, uint32_t code) {
    utf8proc_int32_t folded[8];
    int last = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)code, folded, 8, UTF8PROC_CASEFOLD, &last);
    for (utf8proc_ssize_t i = 0; i < count && i < 8; i++) put_code(out, (uint32_t)folded[i]);
}

size_t jinja_utf8_before(struct str s, size_t end, uint32_t *code) {
    size_t start = end - 1;
    while (start > 0 && ((unsigned char)s.ptr[start] & 0xC0) == 0x80) start--;
    utf8_decode((struct str){s.ptr + start, end - start}, code);
    return start;
}

/* Marks, modifiers and a few signs that do not end a word when case is decided. */
static bool is_case_ignorable(uint32_t code) {
    switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x387 ||
               code == 0x55F || code == 0x5F4 || code == 0x2018 || code == 0x2019 ||
               code == 0x2024 || code == 0x2027 || code == 0xFE13 || code == 0xFE52 ||
               code == 0xFE55 || code == 0xFF07 || code == 0xFF0E || code == 0xFF1A;
    }
}

/* A capital sigma at the end of a word becomes the final form: some cased letter stands
 * before it and none behind, skipping what case ignores. */
static bool is_final_sigma(struct str whole, size_t offset) {
    uint32_t code = 0;
    size_t at = offset;
    while (at > 0) {
        at = jinja_utf8_before(whole, at, &code);
        if (!is_case_ignorable(code)) break;
        code = 0;
    }
    if (!code || !jinja_char_is_cased(code)) return false;
    for (at = offset + 2; at < whole.len;) {
        at += utf8_decode(str_skip(whole, at), &code);
        if (!is_case_ignorable(code)) return !jinja_char_is_cased(code);
    }
    return true;
}

void jinja_put_lower(struct buf *out, struct str whole, size_t offset, uint32_t code) {
    if (code == 0x130) {
        buf_put_text(out, "i\xCC\x87");
    } else if (code == 0x3A3) {
        put_code(out, is_final_sigma(whole, offset) ? 0x3C2 : 0x3C3);
    } else {
        put_code(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
    }
}

struct str jinja_str_strip_space(struct str s, bool left, bool right) {
    uint32_t code;
    while (left && s.len) {
        size_t len = utf8_decode(s, &code);
        if (!jinja_char_is_space(code)) break;
        s = str_skip(s, len);
    }
    while (right && s.len) {
        size_t start = jinja_utf8_before(s, s.len, &code);
        if (!jinja_char_is_space(code)) break;
        s.len = start;
    }
    return s;
}
