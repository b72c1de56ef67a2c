/* Goal:   drive a tokenizer from a script, in both directions, without the program.
 * Method: tok_driver MODEL [--no-special] [--add-special] [--decode [--skip-special]]; MODEL is
 *         a GGUF file, a Hugging Face folder or a tokenizer.json. Encoding reads texts separated
 *         by NUL and prints a line of ids for each; --decode reads lines of ids and prints for
 *         each a line with the number of bytes, and then the bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "format/model_file.h"
#include "text/tokenizer.h"

static enum status open_json(const char *path, struct tokenizer **out, struct err *err) {
    struct buf text;
    struct json *doc = NULL;
    buf_init(&text, (size_t)1 << 30);
    enum status st = file_read(path, &text, err);
    if (st == ST_OK) st = json_parse(buf_str(&text), &json_limits_model_file, &doc, err);
    if (st == ST_OK) st = tokenizer_create_json(doc, NULL, path, out, err);
    json_destroy(doc);
    buf_deinit(&text);
    return st;
}

static enum status open_any(const char *path, struct tokenizer **out, struct err *err) {
    if (str_ends(str_of(path), STR(".json"))) return open_json(path, out, err);
    struct model_file *f;
    TRY(model_file_open(path, &f, err));
    enum status st = tokenizer_create(f, out, err);
    model_file_close(f);
    return st;
}

static enum status encode_all(const struct tokenizer *t, struct str in, struct encode_options o) {
    struct tokens ids = {0};
    enum status st = ST_OK;
    for (bool more = true; more && st == ST_OK;) {
        const char *end = in.len ? memchr(in.ptr, 0, in.len) : NULL;
        size_t len = end ? (size_t)(end - in.ptr) : in.len;
        ids.count = 0;
        st = tokenizer_encode(t, str_take(in, len), o, &ids);
        for (size_t i = 0; i < ids.count; i++) printf(i ? " %d" : "%d", ids.ids[i]);
        putchar('\n');
        more = end != NULL;
        in = str_skip(in, len + 1);
    }
    tokens_deinit(&ids);
    return st;
}

static enum status decode_all(const struct tokenizer *t, struct str in, bool skip) {
    struct tokens ids = {0};
    struct buf out;
    buf_init(&out, (size_t)1 << 30);
    enum status st = ST_OK;
    while (in.len && st == ST_OK) {
        const char *end = memchr(in.ptr, '\n', in.len);
        size_t len = end ? (size_t)(end - in.ptr) : in.len;
        struct str line = str_take(in, len);
        ids.count = 0;
        while (line.len) {
            char *stop;
            if (tokens_push(&ids, (token_id)strtol(line.ptr, &stop, 10)) != ST_OK) break;
            while (stop < line.ptr + line.len && *stop == ' ') stop++;
            line = str_skip(line, (size_t)(stop - line.ptr));
        }
        buf_clear(&out);
        st = tokenizer_decode(t, ids.ids, ids.count, skip, &out);
        printf("%zu\n", out.len);
        fwrite(buf_text(&out), 1, out.len, stdout);
        in = str_skip(in, len + 1);
    }
    tokens_deinit(&ids);
    buf_deinit(&out);
    return st;
}

int main(int argc, char **argv) {
    struct encode_options o = {0};
    bool decode = false, skip = false;
    struct err err = {0};
    struct tokenizer *t = NULL;
    struct buf in;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--no-special")) o.plain_special = true;
        if (!strcmp(argv[i], "--add-special")) o.add_special = true;
        if (!strcmp(argv[i], "--decode")) decode = true;
        if (!strcmp(argv[i], "--skip-special")) skip = true;
    }
    buf_init(&in, (size_t)1 << 31);
    enum status st = argc > 1 ? open_any(argv[1], &t, &err) : ST_MISSING;
    if (st == ST_OK) st = file_read("-", &in, &err);
    if (st == ST_OK) {
        st = decode ? decode_all(t, buf_str(&in), skip) : encode_all(t, buf_str(&in), o);
    }
    if (st != ST_OK) fprintf(stderr, "%s: %s\n", status_name(st), err.text);
    tokenizer_destroy(t);
    buf_deinit(&in);
    return st == ST_OK ? 0 : 1;
}
