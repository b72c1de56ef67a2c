/* unit/text/tok_lib.h - opening tokenizers in tests: from a file, or from a text. */
#ifndef UNIT_TEXT_TOK_LIB_H
#define UNIT_TEXT_TOK_LIB_H

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "format/model_file.h"
#include "text/tokenizer.h"

static inline enum status tok_parse(struct str text, struct tokenizer **out, struct err *err) {
    struct json *doc = NULL;
    *out = NULL;
    enum status st = json_parse(text, &json_limits_model_file, &doc, err);
    if (st == ST_OK) st = tokenizer_create_json(doc, NULL, "test", out, err);
    json_destroy(doc);
    return st;
}

static inline enum status tok_open(const char *path, struct tokenizer **out, struct err *err) {
    *out = NULL;
    if (str_ends(str_of(path), STR(".json"))) {
        struct buf text;
        buf_init(&text, (size_t)1 << 28);
        enum status st = file_read(path, &text, err);
        if (st == ST_OK) st = tok_parse(buf_str(&text), out, err);
        buf_deinit(&text);
        return st;
    }
    struct model_file *f;
    TRY(model_file_open(path, &f, err));
    enum status st = tokenizer_create(f, out, err);
    model_file_close(f);
    return st;
}

/* A file that lies outside the project; false if it is not there. */
static inline bool tok_data_path(char *out, size_t bytes, const char *name) {
    const char *data = getenv("JITNEY_TEST_DATA");
    int n = data && data[0]
                ? snprintf(out, bytes, "%s/%s", data, name)
                : snprintf(out, bytes, "%s/../../shared/data/%s", TEST_SOURCE_DIR, name);
    return n > 0 && (size_t)n < bytes && file_exists(out);
}

#endif
