/* grammar/compile.h - the compilers, one for each kind of source, and what they share.
 *
 * Thread: the one that compiles. Memory: charged to the grammar's budget.
 */
#ifndef GRAMMAR_COMPILE_H
#define GRAMMAR_COMPILE_H

#include "grammar/grammar_int.h"

/* Where JSON may have blanks. */
enum json_blanks {
    BLANKS_NONE,
    BLANKS_ONE, /* ' ' after ',' and ':' */
    BLANKS_ANY, /* blanks, tabs and line ends around punctuation */
};

/* The source of a compile and where its refusal goes. */
struct compiler {
    struct grammar *g;
    enum json_blanks blanks;
    const char *place; /* written before the path of a refusal; NULL: nothing */
    struct grammar_refusal *why;
};

/* Refuse at `path`; returns ST_BAD. */
enum status refuse(struct compiler *c, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

enum { SCHEMA_BYTES_MAX = 8 << 20, SCHEMA_DEPTH_MAX = 200, SCHEMA_VALUES_MAX = 2000000 };
/* The rule of a schema. The caller has checked that it nests at most SCHEMA_DEPTH_MAX deep. ST_BAD:
 * it is refused. */
enum status schema_compile(struct compiler *c, const struct json *doc, rule_id *out);

/* Each sets g->root. */
enum status compile_kind(struct compiler *c, enum grammar_kind kind, struct str source);
enum status compile_schema(struct compiler *c, struct str source);
enum status compile_json_object(struct compiler *c);
enum status compile_regex(struct compiler *c, struct str source);
enum status compile_choice(struct compiler *c, struct str source);
enum status compile_gbnf(struct compiler *c, struct str source);
enum status compile_lark(struct compiler *c, struct str source);
enum status compile_parts(struct compiler *c, struct str source);

#endif
