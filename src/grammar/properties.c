/* grammar/properties.c - general categories of characters, from utf8proc's tables. */
#include "grammar/properties.h"

#include <utf8proc.h>

#define BIT(category) (UINT32_C(1) << UTF8PROC_CATEGORY_##category)
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define MARKS (BIT(MN) | BIT(MC) | BIT(ME))
#define NUMBERS (BIT(ND) | BIT(NL) | BIT(NO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define SYMBOLS (BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO))
#define SEPARATORS (BIT(ZS) | BIT(ZL) | BIT(ZP))
#define OTHERS (BIT(CC) | BIT(CF) | BIT(CS) | BIT(CO) | BIT(CN))

static const struct {
    const char *name, *long_name;
    uint32_t categories;
} names[] = {
    {"L", "Letter", LETTERS},
    {"LC", "Cased_Letter", BIT(LU) | BIT(LL) | BIT(LT)},
    {"Lu", "Uppercase_Letter", BIT(LU)},
    {"Ll", "Lowercase_Letter", BIT(LL)},
    {"Lt", "Titlecase_Letter", BIT(LT)},
    {"Lm", "Modifier_Letter", BIT(LM)},
    {"Lo", "Other_Letter", BIT(LO)},
    {"M", "Mark", MARKS},
    {"Mn", "Nonspacing_Mark", BIT(MN)},
    {"Mc", "Spacing_Mark", BIT(MC)},
    {"Me", "Enclosing_Mark", BIT(ME)},
    {"N", "Number", NUMBERS},
    {"Nd", "Decimal_Number", BIT(ND)},
    {"Nl", "Letter_Number", BIT(NL)},
    {"No", "Other_Number", BIT(NO)},
    {"P", "Punctuation", PUNCTUATION},
    {"Pc", "Connector_Punctuation", BIT(PC)},
    {"Pd", "Dash_Punctuation", BIT(PD)},
    {"Ps", "Open_Punctuation", BIT(PS)},
    {"Pe", "Close_Punctuation", BIT(PE)},
    {"Pi", "Initial_Punctuation", BIT(PI)},
    {"Pf", "Final_Punctuation", BIT(PF)},
    {"Po", "Other_Punctuation", BIT(PO)},
    {"S", "Symbol", SYMBOLS},
    {"Sm", "Math_Symbol", BIT(SM)},
    {"Sc", "Currency_Symbol", BIT(SC)},
    {"Sk", "Modifier_Symbol", BIT(SK)},
    {"So", "Other_Symbol", BIT(SO)},
    {"Z", "Separator", SEPARATORS},
    {"Zs", "Space_Separator", BIT(ZS)},
    {"Zl", "Line_Separator", BIT(ZL)},
    {"Zp", "Paragraph_Separator", BIT(ZP)},
    {"C", "Other", OTHERS},
    {"Cc", "Control", BIT(CC)},
    {"Cf", "Format", BIT(CF)},
    {"Cs", "Surrogate", BIT(CS)},
    {"Co", "Private_Use", BIT(CO)},
    {"Cn", "Unassigned", BIT(CN)},
    {"Any", "Any", LETTERS | MARKS | NUMBERS | PUNCTUATION | SYMBOLS | SEPARATORS | OTHERS},
    {"Assigned", "Assigned",
     LETTERS | MARKS | NUMBERS | PUNCTUATION | SYMBOLS | SEPARATORS | (OTHERS & ~BIT(CN))},
};

/* Ranges of one category that no version of Unicode will change; looking them up costs most. */
static const struct {
    uint32_t low, high, categories;
} uniform[] = {
    {0x3400, 0x4DB5, BIT(LO)},   {0x4E00, 0x9FA5, BIT(LO)},   {0xAC00, 0xD7A3, BIT(LO)},
    {0xD800, 0xDFFF, BIT(CS)},   {0xE000, 0xF8FF, BIT(CO)},   {0x20000, 0x2A6D6, BIT(LO)},
    {0x40000, 0xDFFFF, BIT(CN)}, {0xF0000, 0xFFFFD, BIT(CO)}, {0x100000, 0x10FFFD, BIT(CO)},
};

/* The category of the characters from `c` to *last. */
static uint32_t category_at(uint32_t c, size_t *next, uint32_t *last) {
    const size_t count = sizeof(uniform) / sizeof(*uniform);
    while (*next < count && uniform[*next].high < c) (*next)++;
    *last = c;
    if (*next == count || uniform[*next].low > c)
        return UINT32_C(1) << utf8proc_category((utf8proc_int32_t)c);
    *last = uniform[*next].high;
    return uniform[*next].categories;
}

static void add_categories(uint32_t categories, struct code_set *out) {
    uint32_t start = 0, last = 0;
    bool is_in = false;
    size_t next = 0;
    for (uint32_t c = 0; c <= CODE_MAX; c = last + 1) {
        const bool is_wanted = category_at(c, &next, &last) & categories;
        if (is_wanted && !is_in) start = c;
        if (!is_wanted && is_in) code_set_add(out, start, c - 1);
        is_in = is_wanted;
    }
    if (is_in) code_set_add(out, start, CODE_MAX);
}

bool property_chars(struct str name, struct code_set *out) {
    static const char *const prefixes[] = {"General_Category=", "gc="};
    code_set_clear(out);
    if (str_is(name, "ASCII")) {
        code_set_add(out, 0, 0x7F);
        return true;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (str_starts(name, str_of(prefixes[i]))) name = str_skip(name, str_of(prefixes[i]).len);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (!str_is(name, names[i].name) && !str_is(name, names[i].long_name)) continue;
        add_categories(names[i].categories, out);
        return true;
    }
    return false;
}
