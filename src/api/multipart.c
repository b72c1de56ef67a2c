/* api/multipart.c - see api/multipart.h for the contract. */
#define _GNU_SOURCE /* memmem */
#include "api/multipart.h"

#include <stdio.h>
#include <string.h>

enum { DELIMITER_BYTES = MULTIPART_BOUNDARY_BYTES_MAX + 2 };

static const char CODE[] = "invalid_multipart";

struct reader {
    struct str body;
    size_t at;       /* the first byte that was not read */
    struct str mark; /* "--" and the boundary */
    uint32_t part;   /* the number of the part that is read, from 1 on */
    struct api_error *e;
    char mark_text[DELIMITER_BYTES + 1];
};

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool equals_ignoring_case(struct str s, const char *word) {
    if (s.len != strlen(word)) return false;
    for (size_t i = 0; i < s.len; i++)
        if (lower(s.ptr[i]) != word[i]) return false;
    return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static struct str trim_blanks(struct str s) {
    while (s.len && is_blank(s.ptr[0])) s = str_skip(s, 1);
    while (s.len && is_blank(s.ptr[s.len - 1])) s.len--;
    return s;
}

/* What precedes the first `c`, or all. */
static struct str before_char(struct str s, char c) {
    if (s.len == 0) return STR("");
    const char *found = memchr(s.ptr, c, s.len);
    return found ? str_take(s, (size_t)(found - s.ptr)) : s;
}

/* ---- parameters: ; name=value; name="value" ---- */

struct param {
    struct str name, value; /* the value without its quotes, not decoded */
    bool is_quoted;
};

/* The length of a quoted string with its quotes; 0: it does not end. */
static size_t quoted_len(struct str s) {
    for (size_t i = 1; i < s.len; i++) {
        if (s.ptr[i] == '"') return i + 1;
        if (s.ptr[i] == '\\' && i + 1 < s.len) i++;
    }
    return 0;
}

/* ST_OK: the next parameter; ST_MISSING: there is none; ST_BAD: malformed. */
static enum status next_param(struct str *rest, struct param *out) {
    *rest = trim_blanks(*rest);
    while (rest->len && rest->ptr[0] == ';') *rest = trim_blanks(str_skip(*rest, 1));
    if (rest->len == 0) return ST_MISSING;
    struct str name = before_char(*rest, '=');
    if (name.len == rest->len) return ST_BAD;
    *rest = trim_blanks(str_skip(*rest, name.len + 1));
    *out = (struct param){.name = trim_blanks(name)};
    if (rest->len && rest->ptr[0] == '"') {
        const size_t len = quoted_len(*rest);
        if (len == 0) return ST_BAD;
        out->is_quoted = true;
        out->value = (struct str){rest->ptr + 1, len - 2};
        *rest = trim_blanks(str_skip(*rest, len));
        return rest->len && rest->ptr[0] != ';' ? ST_BAD : ST_OK;
    }
    struct str value = before_char(*rest, ';');
    out->value = trim_blanks(value);
    *rest = str_skip(*rest, value.len);
    return ST_OK;
}

/* ---- names ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One character of a quoted name; returns the bytes that were read. */
static size_t decode_quoted(struct str s, char *out) {
    *out = s.ptr[0];
    if (s.len >= 2 && s.ptr[0] == '\\' && (s.ptr[1] == '"' || s.ptr[1] == '\\')) {
        *out = s.ptr[1];
        return 2;
    }
    if (str_starts(s, STR("%22"))) {
        *out = '"';
        return 3;
    }
    return 1;
}

/* The same of a percent-encoded one; 0: malformed. */
static size_t decode_percent(struct str s, char *out) {
    *out = s.ptr[0];
    if (s.ptr[0] != '%') return 1;
    if (s.len < 3 || hex_digit(s.ptr[1]) < 0 || hex_digit(s.ptr[2]) < 0) return 0;
    *out = (char)(hex_digit(s.ptr[1]) * 16 + hex_digit(s.ptr[2]));
    return 3;
}

static size_t decode_plain(struct str s, char *out) {
    *out = s.ptr[0];
    return 1;
}

typedef size_t decode_fn(struct str s, char *out);

/* Decode a name into `out`; what it is called is for errors. */
static enum status store_name(struct reader *r, const char *what, struct str value,
                              decode_fn *decode, char *out, size_t bytes) {
    size_t len = 0;
    out[0] = 0;
    for (struct str rest = value; rest.len;) {
        char c;
        const size_t read = decode(rest, &c);
        if (read == 0 || (unsigned char)c < 0x20 || c == 0x7f)
            return api_refuse(r->e, 400, NULL, CODE,
                              "Part %u: after '%.100s' the %s has a control character or a "
                              "malformed percent sequence; expected text.",
                              r->part, out, what);
        if (len + 1 >= bytes)
            return api_refuse(r->e, 400, NULL, CODE,
                              "Part %u: the %s is longer than %zu bytes, the maximum.", r->part,
                              what, bytes - 1);
        out[len++] = c;
        out[len] = 0;
        rest = str_skip(rest, read);
    }
    return ST_OK;
}

/* Drop folders: some clients send the path of the file. */
static void drop_folders(char *name) {
    char *base = name;
    for (char *p = name; *p; p++)
        if (*p == '/' || *p == '\\') base = p + 1;
    memmove(name, base, strlen(base) + 1);
}

/* filename*=UTF-8''a%20b */
static enum status store_extended(struct reader *r, struct str value, struct multipart_part *out) {
    struct str charset = before_char(value, '\'');
    struct str rest = str_skip(value, charset.len + (charset.len < value.len));
    struct str language = before_char(rest, '\'');
    if (charset.len == value.len || language.len == rest.len ||
        !equals_ignoring_case(charset, "utf-8"))
        return api_refuse(r->e, 400, NULL, CODE,
                          "Part %u: filename* is '%.*s'; expected UTF-8''NAME, percent-encoded.",
                          r->part, (int)(value.len > 100 ? 100 : value.len), value.ptr);
    return store_name(r, "filename*", str_skip(rest, language.len + 1), decode_percent,
                      out->filename, sizeof(out->filename));
}

/* ---- the headers of a part ---- */

static enum status read_disposition(struct reader *r, struct str value,
                                    struct multipart_part *out) {
    struct str kind = before_char(value, ';'), rest = str_skip(value, kind.len);
    bool has_name = false, has_extended = false;
    struct param p;
    enum status st;
    if (!equals_ignoring_case(trim_blanks(kind), "form-data"))
        return api_refuse(r->e, 400, NULL, CODE,
                          "Part %u: Content-Disposition is '%.*s'; expected form-data.", r->part,
                          (int)(kind.len > 100 ? 100 : kind.len), kind.ptr);
    while ((st = next_param(&rest, &p)) == ST_OK) {
        decode_fn *decode = p.is_quoted ? decode_quoted : decode_plain;
        if (equals_ignoring_case(p.name, "name")) {
            TRY(store_name(r, "name", p.value, decode, out->name, sizeof(out->name)));
            has_name = true;
        } else if (equals_ignoring_case(p.name, "filename*")) {
            TRY(store_extended(r, p.value, out));
            has_extended = true;
        } else if (equals_ignoring_case(p.name, "filename") && !has_extended) {
            TRY(store_name(r, "filename", p.value, decode, out->filename, sizeof(out->filename)));
        }
    }
    if (st == ST_BAD || !has_name)
        return api_refuse(r->e, 400, NULL, CODE, "Part %u: Content-Disposition %s.", r->part,
                          st == ST_BAD ? "is malformed; expected form-data; name=\"NAME\""
                                       : "has no name; expected form-data; name=\"NAME\"");
    drop_folders(out->filename);
    return ST_OK;
}

static enum status check_encoding(struct reader *r, struct str value) {
    if (equals_ignoring_case(value, "binary") || equals_ignoring_case(value, "8bit") ||
        equals_ignoring_case(value, "7bit"))
        return ST_OK;
    return api_refuse(r->e, 400, NULL, CODE,
                      "Part %u: Content-Transfer-Encoding '%.*s' is not supported; send the bytes "
                      "as they are.",
                      r->part, (int)(value.len > 100 ? 100 : value.len), value.ptr);
}

static enum status read_header(struct reader *r, struct str line, bool *is_form,
                               struct multipart_part *out) {
    struct str name = before_char(line, ':');
    if (name.len == line.len || name.len == 0 || is_blank(line.ptr[0]))
        return api_refuse(r->e, 400, NULL, CODE,
                          "Part %u: the header line '%.*s' is malformed; expected NAME: VALUE.",
                          r->part, (int)(line.len > 100 ? 100 : line.len), line.ptr);
    struct str value = trim_blanks(str_skip(line, name.len + 1));
    if (equals_ignoring_case(name, "content-disposition")) {
        *is_form = true;
        return read_disposition(r, value, out);
    }
    if (equals_ignoring_case(name, "content-type")) out->type = value;
    if (equals_ignoring_case(name, "content-transfer-encoding")) return check_encoding(r, value);
    return ST_OK;
}

/* From r->at to the empty line, which is read as well. */
static enum status read_headers(struct reader *r, struct multipart_part *out) {
    bool is_form = false;
    const size_t begin = r->at;
    for (;;) {
        struct str rest = str_skip(r->body, r->at);
        const char *end = rest.len ? memmem(rest.ptr, rest.len, "\r\n", 2) : NULL;
        struct str line = end ? str_take(rest, (size_t)(end - rest.ptr)) : rest;
        if (r->at - begin + line.len > MULTIPART_HEADER_BYTES_MAX)
            return api_refuse(r->e, 400, NULL, CODE,
                              "Part %u: its headers are longer than %d bytes, the maximum.",
                              r->part, MULTIPART_HEADER_BYTES_MAX);
        if (!end)
            return api_refuse(r->e, 400, NULL, CODE,
                              "Part %u: the body ends inside its headers; expected an empty line "
                              "(CR LF) after them.",
                              r->part);
        r->at += line.len + 2;
        if (line.len == 0) break;
        TRY(read_header(r, line, &is_form, out));
    }
    if (is_form) return ST_OK;
    return api_refuse(r->e, 400, NULL, CODE,
                      "Part %u has no Content-Disposition; expected form-data; name=\"NAME\".",
                      r->part);
}

/* ---- boundaries ---- */

struct delimiter {
    size_t begin, end; /* of the line, its CR LF included */
    bool is_last;
};

/* Whether a delimiter is at `at`, where the mark is. */
static bool is_delimiter(const struct reader *r, size_t at, struct delimiter *out) {
    const struct str body = r->body;
    if (at > 0 && (at < 2 || memcmp(body.ptr + at - 2, "\r\n", 2) != 0)) return false;
    *out = (struct delimiter){.begin = at, .end = at + r->mark.len};
    struct str rest = str_skip(body, out->end);
    if (str_starts(rest, STR("--"))) {
        out->is_last = true;
        rest = str_skip(rest, 2);
    }
    while (rest.len && is_blank(rest.ptr[0])) rest = str_skip(rest, 1);
    out->end = body.len - rest.len + 2;
    if (rest.len == 0) out->end = body.len;
    return str_starts(rest, STR("\r\n")) || (rest.len == 0 && out->is_last);
}

/* The first delimiter from `from` on. */
static bool find_delimiter(const struct reader *r, size_t from, struct delimiter *out) {
    while (from < r->body.len) {
        const char *found =
            memmem(r->body.ptr + from, r->body.len - from, r->mark.ptr, r->mark.len);
        if (!found) return false;
        const size_t at = (size_t)(found - r->body.ptr);
        if (is_delimiter(r, at, out)) return true;
        from = at + 1;
    }
    return false;
}

static enum status refuse_unbounded(struct reader *r) {
    const struct str body = r->body;
    const bool has_mark = body.len && memmem(body.ptr, body.len, r->mark.ptr, r->mark.len);
    const bool has_breaks = body.len && memmem(body.ptr, body.len, "\r\n", 2);
    if (has_mark && !has_breaks)
        return api_refuse(r->e, 400, NULL, CODE,
                          "The lines of the form end with LF alone; expected CR LF after every "
                          "boundary and header.");
    if (r->part == 0)
        return api_refuse(r->e, 400, NULL, CODE,
                          "The body has no line '%.*s', the boundary that Content-Type names.",
                          STR_ARG(r->mark));
    return api_refuse(r->e, 400, NULL, CODE,
                      "The body ends inside part %u: the closing line '%.*s--' is missing.",
                      r->part, STR_ARG(r->mark));
}

/* ---- Content-Type ---- */

bool multipart_is_form(struct str content_type) {
    return equals_ignoring_case(trim_blanks(before_char(content_type, ';')), "multipart/form-data");
}

static bool is_boundary(struct str s) {
    static const char marks[] = "'()+_,-./:=? ";
    if (s.len == 0 || s.len > MULTIPART_BOUNDARY_BYTES_MAX || s.ptr[s.len - 1] == ' ') return false;
    for (size_t i = 0; i < s.len; i++) {
        const char c = lower(s.ptr[i]);
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!is_plain && (c == 0 || !strchr(marks, c))) return false;
    }
    return true;
}

static enum status read_boundary(struct reader *r, struct str content_type) {
    struct str rest = str_skip(content_type, before_char(content_type, ';').len), boundary = {0};
    struct param p;
    if (!multipart_is_form(content_type))
        return api_refuse(r->e, 400, NULL, CODE,
                          "Content-Type is '%.*s'; expected multipart/form-data with a boundary.",
                          (int)(content_type.len > 100 ? 100 : content_type.len),
                          content_type.ptr ? content_type.ptr : "");
    while (next_param(&rest, &p) == ST_OK)
        if (equals_ignoring_case(p.name, "boundary")) boundary = p.value;
    if (!is_boundary(boundary))
        return api_refuse(r->e, 400, NULL, CODE,
                          "Content-Type has %s; expected 1 to %d letters, digits or '()+_,-./:=?.",
                          boundary.len ? "a malformed boundary" : "no boundary",
                          MULTIPART_BOUNDARY_BYTES_MAX);
    int n = snprintf(r->mark_text, sizeof(r->mark_text), "--%.*s", STR_ARG(boundary));
    r->mark = (struct str){r->mark_text, (size_t)n};
    return ST_OK;
}

/* ---- entry points ---- */

enum status multipart_read(struct str content_type, struct str body, struct multipart *out,
                           struct api_error *e) {
    struct reader r = {.body = body, .mark = STR(""), .e = e};
    struct delimiter d;
    out->count = 0;
    TRY(read_boundary(&r, content_type));
    if (!find_delimiter(&r, 0, &d)) return refuse_unbounded(&r);
    while (!d.is_last) {
        r.part = out->count + 1;
        if (out->count == MULTIPART_PARTS_MAX)
            return api_refuse(e, 400, NULL, CODE, "The form has more than %d parts, the maximum.",
                              MULTIPART_PARTS_MAX);
        struct multipart_part *part = &out->parts[out->count];
        *part = (struct multipart_part){.type = STR("")};
        r.at = d.end;
        TRY(read_headers(&r, part));
        const size_t begin = r.at;
        if (!find_delimiter(&r, begin, &d)) return refuse_unbounded(&r);
        /* Without data the empty line's break may also be the delimiter's. */
        const size_t end = d.begin >= begin + 2 ? d.begin - 2 : begin;
        part->data = (struct str){body.ptr + begin, end - begin};
        out->count++;
    }
    return ST_OK;
}

const struct multipart_part *multipart_find(const struct multipart *form, const char *name) {
    for (uint32_t i = 0; i < form->count; i++)
        if (strcmp(form->parts[i].name, name) == 0) return &form->parts[i];
    return NULL;
}
