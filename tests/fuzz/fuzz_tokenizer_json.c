/* fuzz/fuzz_tokenizer_json.c - a tokenizer.json that an attacker wrote, and a text. The input is
 * the document, a NUL, the text. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/use_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct json_limits limits = {
        .bytes_max = 1 << 18, .depth_max = 32, .values_max = 1 << 14};
    struct str in = {(const char *)data, size};
    const char *end = size ? memchr(data, 0, size) : NULL;
    size_t doc_len = end ? (size_t)(end - in.ptr) : size;
    struct json *doc;
    struct tokenizer *t = NULL;
    struct err err = {0};
    if (json_parse(str_take(in, doc_len), &limits, &doc, &err) != ST_OK) return 0;
    enum status st = tokenizer_create_json(doc, doc, "fuzz", &t, &err);
    json_destroy(doc);
    if (st == ST_OK)
        use_tokenizer(t, str_skip(in, doc_len + 1));
    else
        CHECK(strncmp(err.text, "fuzz: ", 6) == 0);
    tokenizer_destroy(t);
    return 0;
}
