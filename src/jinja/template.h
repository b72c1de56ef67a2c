/* jinja/template.h - chat templates, written in the part of Jinja that models use.
 *
 * A template is parsed once and rendered often, against variables given as JSON. Results are
 * byte for byte those of Python's jinja2 with the settings that `transformers` uses
 * (trim_blocks, lstrip_blocks, loop controls, sandbox, tojson without HTML escapes and with
 * ensure_ascii off, strftime_now, raise_exception, the generation block).
 *
 * A template comes with a model file and is not trusted: parsing and rendering have limits on size,
 * depth, steps, time, memory and output, and a template can access only its variables.
 *
 * Lifetime: create, render, destroy. Thread: one template may be rendered by many at once.
 */
#ifndef JINJA_TEMPLATE_H
#define JINJA_TEMPLATE_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct json;
struct template; /* opaque */

struct template_limits {
    uint32_t depth_max;  /* nesting of expressions, blocks and macro calls */
    uint64_t steps_max;  /* of one render: nodes evaluated, elements and bytes looked at */
    int64_t cpu_us_max;  /* processor time of one render, in case that steps take long */
    uint64_t memory_max; /* bytes of all values created in one render */
    uint64_t range_max;  /* the longest range() */
};
extern const struct template_limits template_limits_default;

/* ST_BAD: "line 3: unknown tag 'frob'". `source` is copied. */
enum status template_create(struct str source, struct template **out, struct err *err);
void template_destroy(struct template *t); /* NULL is fine */

/* Append the result to `out`, whose own maximum limits it. `vars` is a JSON map: its keys are
 * the template's variables. `now_s` is the time that strftime_now sees (UTC seconds since 1970;
 * shown in local time as Python's datetime.now() does). ST_BAD with a message for an error in
 * the template or one that the template itself raised ("raise_exception: ..."), ST_FULL for a
 * limit. */
enum status template_render(const struct template *t, const struct json *vars, int64_t now_s,
                            const struct template_limits *limits, struct buf *out, struct err *err);

#endif
