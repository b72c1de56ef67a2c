/* text/regex_int.h - from Oniguruma's language to PCRE2's; for regex.c only.
 *
 * tokenizer.json writes its patterns for Oniguruma (Ruby syntax, UTF-8). Most of it means the
 * same to PCRE2; what differs is rewritten: \s, \w, \b and \h, which name other sets, script
 * names in \p{...}, \u escapes, and && and nested sets inside brackets.
 */
#ifndef TEXT_REGEX_INT_H
#define TEXT_REGEX_INT_H

#include "base/status.h"
#include "base/str.h"

struct buf;

/* ST_BAD with a sentence for what cannot be said in PCRE2. `what` names the part of the file. */
enum status regex_translate(struct str pattern, const char *what, struct buf *out, struct err *err);

#endif
