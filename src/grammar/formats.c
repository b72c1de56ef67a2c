/* grammar/formats.c - the formats of JSON Schema as regular expressions.
 *
 * Names that the standard does not define ("int32", "password") assert nothing. Names that it
 * defines and that are not here are refused.
 */
#include <stddef.h>

#include "grammar/schema_int.h"

#define DATE_DAYS                                                                                  \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"      \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define LEAP_YEAR "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE "(?:[0-9]{4}-" DATE_DAYS "|" LEAP_YEAR "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"
#define ZONE "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
/* A leap second is 23:59:60 UTC. Zones other than whole UTC are too many to list. */
#define LEAP_SECOND "23:59:60(?:\\.[0-9]+)?(?:[zZ]|[+-]00:00)"
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

static const struct {
    const char *name;
    const char *patterns[2]; /* one of them matches; NULL: refused */
} formats[] = {
    {"date", {"^" DATE "$"}},
    {"time", {"^(?:" CLOCK ZONE "|" LEAP_SECOND ")$"}},
    {"date-time", {"^" DATE "[tT](?:" CLOCK ZONE "|" LEAP_SECOND ")$"}},
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
    {"idn-email", {NULL}},
    {"idn-hostname", {NULL}},
    {"iri", {NULL}},
    {"iri-reference", {NULL}},
    {"uri-template", {NULL}},
    {"regex", {NULL}},
};

const char *const *format_patterns(struct str name) {
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
        if (str_is(name, formats[i].name)) return formats[i].patterns;
    return NULL;
}
