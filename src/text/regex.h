/* text/regex.h - patterns as Oniguruma reads them, run by PCRE2 in linear time. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;

struct regex;      /* opaque; shared by all threads */
struct regex_work; /* opaque; one per call that searches */

/* `what` names the part of the file for the sentence. */
enum status regex_create(struct str pattern, const char *what, struct regex **out, struct err *err);
void regex_destroy(struct regex *re);
struct regex_work *regex_work_create(void); /* NULL: out of memory */
void regex_work_destroy(struct regex_work *w);

struct regex_search {
    const struct regex *re;
    struct regex_work *work;
    struct str text;
    size_t pos, last_end;
    uint64_t budget; /* bytes of long windows still allowed: what keeps time linear */
    bool any;
};
void regex_search_init(struct regex_search *s, const struct regex *re, struct regex_work *work,
                       struct str text);
bool regex_search_next(struct regex_search *s, size_t *start, size_t *end);

/* A literal or a regular expression. */
struct pattern {
    struct regex *re; /* NULL: literal */
    char *literal;    /* heap */
    size_t literal_len;
};
void pattern_deinit(struct pattern *p);
struct pattern_search {
    const struct pattern *p;
    struct regex_search re;
    struct str text;
    size_t pos;
};
void pattern_search_init(struct pattern_search *s, const struct pattern *p, struct regex_work *work,
                         struct str text);
bool pattern_search_next(struct pattern_search *s, size_t *start, size_t *end);
/* `text` with every match replaced. */
void pattern_replace(const struct pattern *p, struct str with, struct regex_work *work,
                     struct str text, struct buf *out);

#endif
