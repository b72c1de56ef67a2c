/* jinja/format.h - numbers and texts padded, signed and rounded; for this folder
 * only. What "%5.2f" and "{:>5}" have in common. */
#ifndef JINJA_FORMAT_H
#define JINJA_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "jinja/value.h"

struct format_spec {
    struct str fill; /* one character */
    char align;      /* '<', '>', '^', '=' (between sign and digits), or 0 for the default */
    char sign;       /* '+', '-', ' ' */
    bool is_alternate;
    char grouping; /* ',', '_' or 0 */
    int64_t width;
    int64_t precision; /* -1: none */
    char type;         /* 0: none */
};

struct format_spec jinja_format_spec_default(void);

/* Append to the work buffer, padded. */
enum status jinja_format_text(struct run *r, struct str s, const struct format_spec *spec);
/* `digits_min` pads with zeros on the left, as "%.5d" does. */
enum status jinja_format_int(struct run *r, int64_t number, const struct format_spec *spec,
                             int64_t digits_min);
enum status jinja_format_float(struct run *r, double number, const struct format_spec *spec);
enum status jinja_format_char(struct run *r, int64_t code, const struct format_spec *spec);

#endif
