/* tests/fuzz/fuzz_template.c - any bytes as a template and its variables.
 *
 * The input is a template, a NUL byte, and the variables as JSON; without a NUL the template
 * gets a fixed set that has a bit of everything. Limits are small, so that inputs stay quick.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "jinja/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char fixed_vars[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9 <b>\"}, {\"role\": \"assistant\","
    " \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\":"
    " 1.5}}}]}], \"a\": 1, \"s\": \"Hello World\", \"l\": [3, 1, 2], \"d\": {\"x\": [true]}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct template_limits limits = {
        .depth_max = 150, .steps_max = 100000, .memory_max = 4 << 20, .range_max = 1000};
    const struct json_limits json_limits = {
        .bytes_max = 1 << 16, .depth_max = 40, .values_max = 1000};
    struct str input = {(const char *)data, size};
    const char *nul = size ? memchr(data, 0, size) : NULL;
    struct str source = nul ? str_take(input, (size_t)(nul - input.ptr)) : input;
    struct str vars_text = nul ? str_skip(input, source.len + 1) : str_of(fixed_vars);
    struct template *t = NULL;
    struct json *vars = NULL;
    struct err err = {0};
    if (template_create(source, &t, &err) != ST_OK) return 0;
    if (json_parse(vars_text, &json_limits, &vars, &err) == ST_OK) {
        struct buf out;
        buf_init(&out, 1 << 20);
        template_render(t, vars, 1721000000, &limits, &out, &err);
        buf_deinit(&out);
    }
    json_destroy(vars);
    template_destroy(t);
    return 0;
}
