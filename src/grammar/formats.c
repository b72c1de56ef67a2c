/* grammar/formats.c - the formats of JSON Schema as regular expressions.
 *
 * Names that the standard does not define ("int32", "password") assert nothing. Names that it
 * defines and that are not here are refused.
 */
#include <stddef.h>
#include <stdio.h>

#include "grammar/regex.h"
#include "grammar/schema_int.h"

#define DATE_DAYS                                                                                  \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"      \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_YEAR "(?:[0-9][0-9]" LEAP "|" LEAP "00)"
#define LEAP "(?:0[48]|[2468][048]|[13579][26])"
#define YEAR                                                                                       \
    "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])" /* many readers have no year 0 */
#define DATE "(?:" YEAR "-" DATE_DAYS "|" LEAP_YEAR "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
#define ZONE "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL                                                                                      \
    "(?:" ATOM "(?:\\." ATOM ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" HOSTNAME "|\\[(?:" IPV4   \
    "|IPv6:" IPV6 ")\\])"
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define USERINFO "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*"
#define REG_NAME "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*"
#define AUTHORITY                                                                                  \
    "(?:" USERINFO "@)?(?:\\[(?:" IPV6                                                             \
    "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" REG_NAME ")(?::[0-9]*)?"
#define URI_TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI_PATH                                                                                   \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR     \
    "*)*|)"
#define SEGMENT_NC "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")+"
#define RELATIVE                                                                                   \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" SEGMENT_NC "(?:/" PCHAR \
    "*)*|)"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:" URI_PATH URI_TAIL
#define TIME_PART "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DATE_PART "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

/* RFC 3987: the same with these characters. A query also has those for private use. */
#define UCS                                                                                        \
    "\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\U00010000-\U0001FFFD\U00020000-\U0002FFFD"            \
    "\U00030000-\U0003FFFD\U00040000-\U0004FFFD\U00050000-\U0005FFFD"                              \
    "\U00060000-\U0006FFFD\U00070000-\U0007FFFD\U00080000-\U0008FFFD"                              \
    "\U00090000-\U0009FFFD\U000A0000-\U000AFFFD\U000B0000-\U000BFFFD"                              \
    "\U000C0000-\U000CFFFD\U000D0000-\U000DFFFD\U000E1000-\U000EFFFD"
#define PRIVATE "\uE000-\uF8FF\U000F0000-\U000FFFFD\U00100000-\U0010FFFD"
#define IPCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@" UCS "-]|" PCT ")"
#define IUSERINFO "(?:[A-Za-z0-9._~!$&'()*+,;=:" UCS "-]|" PCT ")*"
#define IREG_NAME "(?:[A-Za-z0-9._~!$&'()*+,;=" UCS "-]|" PCT ")*"
#define IAUTHORITY                                                                                 \
    "(?:" IUSERINFO "@)?(?:\\[(?:" IPV6                                                            \
    "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" IREG_NAME ")(?::[0-9]*)?"
#define IRI_TAIL "(?:\\?(?:" IPCHAR "|[/?" PRIVATE "])*)?(?:#(?:" IPCHAR "|[/?])*)?"
#define IRI_PATH                                                                                   \
    "(?://" IAUTHORITY "(?:/" IPCHAR "*)*|/(?:" IPCHAR "+(?:/" IPCHAR "*)*)?|" IPCHAR              \
    "+(?:/" IPCHAR "*)*|)"
#define ISEGMENT_NC "(?:[A-Za-z0-9._~!$&'()*+,;=@" UCS "-]|" PCT ")+"
#define IRI_RELATIVE                                                                               \
    "(?://" IAUTHORITY "(?:/" IPCHAR "*)*|/(?:" IPCHAR "+(?:/" IPCHAR "*)*)?|" ISEGMENT_NC         \
    "(?:/" IPCHAR "*)*|)"
#define IRI "[A-Za-z][A-Za-z0-9+.-]*:" IRI_PATH IRI_TAIL
/* RFC 6531, with the domain in its ASCII form, which every domain has. */
#define IATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" UCS "-]+"
#define IDN_EMAIL IATOM "(?:\\." IATOM ")*@" HOSTNAME
/* RFC 6570 */
#define VARNAME "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*"
#define VARSPEC VARNAME "(?::[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE                                                                                   \
    "(?:[!#$&(-;=?-\\[\\]_a-z~" UCS PRIVATE "]|" PCT "|\\{[+#./;?&]?" VARSPEC "(?:," VARSPEC       \
    ")*\\})*"

static const struct {
    const char *name;
    const char *patterns[2]; /* one of them matches; NULL: refused */
} formats[] = {
    {"date", {"^" DATE "$"}},
    {"time", {"^" CLOCK ZONE "$"}},
    {"date-time", {"^" DATE "[tT]" CLOCK ZONE "$"}},
    {"duration", {"^P(?:" DATE_PART "(?:" TIME_PART ")?|" TIME_PART "|[0-9]+W)$"}},
    {"email", {"^" EMAIL "$"}},
    {"hostname", {"^" HOSTNAME "$"}},
    {"ipv4", {"^" IPV4 "$"}},
    {"ipv6", {"^" IPV6 "$"}},
    {"uri", {"^" URI "$"}},
    {"uri-reference", {"^" URI "$", "^" RELATIVE URI_TAIL "$"}},
    {"uuid", {"^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"}},
    {"json-pointer", {"^" POINTER "$"}},
    {"relative-json-pointer", {"^(?:0|[1-9][0-9]*)(?:#|" POINTER ")$"}},
    {"iri", {"^" IRI "$"}},
    {"iri-reference", {"^" IRI "$", "^" IRI_RELATIVE IRI_TAIL "$"}},
    {"uri-template", {"^" TEMPLATE "$"}},
    {"idn-email", {"^" IDN_EMAIL "$"}},
    {"idn-hostname", {NULL}},
};

const char *const *format_patterns(struct str name) {
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        if (str_is(name, formats[i].name)) return formats[i].patterns;
    return NULL;
}

/* "hh:mm:60", a fraction, and an offset; NULL: any two digits. */
struct leap_form {
    const char *hour, *minute, *sign, *offset_hour, *offset_minute;
};

static expr_id leap_expr(struct expr_pool *p, struct leap_form f) {
    const expr_id two = expr_repeat(p, expr_range(p, '0', '9'), 2, 2);
    const expr_id fraction = expr_repeat(
        p, expr_concat(p, expr_literal(p, STR(".")), expr_repeat(p, expr_range(p, '0', '9'), 1, 9)),
        0, 1);
    const char *const parts[] = {f.hour, ":",           f.minute, ":60",
                                 f.sign, f.offset_hour, ":",      f.offset_minute};
    expr_id e = EXPR_EMPTY;
    for (size_t i = sizeof(parts) / sizeof(*parts); i > 0; i--) {
        e = expr_concat(p, parts[i - 1] ? expr_literal(p, str_of(parts[i - 1])) : two, e);
        if (i == 5) e = expr_concat(p, fraction, e);
    }
    return e;
}

static const char *two_digits(char out[4], int value) {
    snprintf(out, 4, "%02d", value % 60);
    return out;
}

/* 23:59:60 UTC in local time: with -hh:mm the hours add up to 23 and the minutes to 59; with +hh:mm
 * the offset is one minute more than the local time. Hours and minutes are joined by intersection:
 * 84 texts for each sign instead of 1440. */
static expr_id leap_offsets(struct expr_pool *p) {
    expr_id hours[2] = {EXPR_NONE, EXPR_NONE}, minutes[2] = {EXPR_NONE, EXPR_NONE},
            last = EXPR_NONE;
    char a[4], b[4];
    for (int h = 0; h < 24; h++) {
        const char *hour = two_digits(a, h);
        hours[0] =
            expr_or(p, hours[0],
                    leap_expr(p, (struct leap_form){hour, NULL, "-", two_digits(b, 23 - h), NULL}));
        hours[1] =
            expr_or(p, hours[1], leap_expr(p, (struct leap_form){hour, NULL, "+", hour, NULL}));
        last = expr_or(
            p, last,
            leap_expr(p, (struct leap_form){hour, "59", "+", two_digits(b, (h + 1) % 24), "00"}));
    }
    for (int m = 0; m < 60; m++) {
        const char *minute = two_digits(a, m);
        minutes[0] = expr_or(
            p, minutes[0],
            leap_expr(p, (struct leap_form){NULL, minute, "-", NULL, two_digits(b, 59 - m)}));
        if (m == 59) continue;
        minutes[1] = expr_or(
            p, minutes[1],
            leap_expr(p, (struct leap_form){NULL, minute, "+", NULL, two_digits(b, m + 1)}));
    }
    return expr_or_all(
        p, (expr_id[]){expr_and(p, hours[0], minutes[0]), expr_and(p, hours[1], minutes[1]), last},
        3);
}

expr_id format_leap_seconds(struct expr_pool *p, struct str name) {
    bool has_date = str_is(name, "date-time");
    struct err err = {0};
    expr_id date = EXPR_EMPTY, utc = EXPR_NONE, quote = expr_range(p, '"', '"');
    if (!has_date && !str_is(name, "time")) return EXPR_NONE;
    if (has_date && regex_whole(p, STR(DATE "[tT]"), 0, &date, &err) != ST_OK) return EXPR_NONE;
    if (regex_whole(p, STR("23:59:60(?:\\.[0-9]{1,9})?[zZ]"), 0, &utc, &err) != ST_OK)
        return EXPR_NONE;
    expr_id clock = expr_or(p, utc, leap_offsets(p));
    return expr_concat(p, quote, expr_concat(p, date, expr_concat(p, clock, quote)));
}
