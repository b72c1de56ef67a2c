/* jinja/time.c - strftime_now: the time of the render, in local time.
 *
 * Each directive is passed to the C library by itself, so that its result is bounded. Python's own
 * ones come first: a time without a zone prints %z and %Z as nothing, %f as microseconds.
 */
#include <string.h>
#include <time.h>

#include "jinja/run.h"
#include "jinja/value.h"

enum { DIRECTIVE_BYTES_MAX = 16, RESULT_BYTES_MAX = 256 };

/* How long the directive at s (which starts with '%') is; 0 if it is cut short. */
static size_t directive_len(struct str s) {
    size_t len = 1;
    while (len < s.len && strchr("-_0^#123456789EO", s.ptr[len]) && s.ptr[len]) len++;
    return len < s.len ? len + 1 : 0;
}

static enum status put_directive(struct run *r, struct str directive, const struct tm *now) {
    char format[DIRECTIVE_BYTES_MAX + 2], result[RESULT_BYTES_MAX];
    char letter = directive.ptr[directive.len - 1];
    if (letter == 'z' || letter == 'Z') return ST_OK;
    if (letter == 'f') {
        buf_put_text(&r->work, "000000");
        return ST_OK;
    }
    if (directive.len > DIRECTIVE_BYTES_MAX)
        return jinja_run_fail(r, "a bad directive for strftime");
    /* With a blank in front, an empty result differs from one that does not fit. */
    format[0] = ' ';
    memcpy(format + 1, directive.ptr, directive.len);
    format[directive.len + 1] = 0;
    size_t len = strftime(result, sizeof(result), format, now);
    if (!len)
        return jinja_run_fail(r, "a directive for strftime gives over %d bytes", RESULT_BYTES_MAX);
    buf_put(&r->work, result + 1, len - 1);
    return ST_OK;
}

enum status jinja_put_time(struct run *r, struct str format) {
    struct tm now;
    time_t seconds = (time_t)r->now_s;
    if (!localtime_r(&seconds, &now)) return jinja_run_fail(r, "the time is out of range");
    while (format.len) {
        size_t len = format.ptr[0] == '%' ? directive_len(format) : 0;
        if (len) {
            TRY(put_directive(r, str_take(format, len), &now));
            format = str_skip(format, len);
        } else {
            buf_put_char(&r->work, format.ptr[0]);
            format = str_skip(format, 1);
        }
    }
    return ST_OK;
}
