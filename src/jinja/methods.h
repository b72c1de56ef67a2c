/* jinja/methods.h - the methods of texts, in the files that implement them; for this folder
 * only. Each is the body of a struct builtin whose self is a V_TEXT. */
#ifndef JINJA_METHODS_H
#define JINJA_METHODS_H

#include "base/status.h"
#include "jinja/run.h"

typedef enum status method_fn(struct run *r, struct call *call, struct value *out);

/* case.c */
method_fn jinja_str_capitalize, jinja_str_casefold, jinja_str_lower, jinja_str_swapcase,
    jinja_str_title, jinja_str_upper;
method_fn jinja_str_isalnum, jinja_str_isalpha, jinja_str_isascii, jinja_str_isdecimal,
    jinja_str_isdigit, jinja_str_isidentifier, jinja_str_islower, jinja_str_isnumeric,
    jinja_str_isprintable, jinja_str_isspace, jinja_str_istitle, jinja_str_isupper;
method_fn jinja_str_center, jinja_str_ljust, jinja_str_rjust, jinja_str_zfill, jinja_str_expandtabs;

/* split.c */
method_fn jinja_str_count, jinja_str_find_method, jinja_str_rfind, jinja_str_index,
    jinja_str_rindex;
method_fn jinja_str_startswith, jinja_str_endswith, jinja_str_removeprefix, jinja_str_removesuffix;
method_fn jinja_str_strip, jinja_str_lstrip, jinja_str_rstrip;
method_fn jinja_str_split, jinja_str_rsplit, jinja_str_splitlines, jinja_str_partition,
    jinja_str_rpartition;
method_fn jinja_str_replace, jinja_str_join, jinja_str_format, jinja_str_format_map;

/* Shared with filters. */
enum status jinja_text_split_lines(struct run *r, struct value v, bool keep_ends,
                                   struct value *out);
enum status jinja_text_replace(struct run *r, struct str s, struct str from, struct str to,
                               int64_t count_max, struct value *out);

#endif
