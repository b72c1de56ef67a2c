/* cli/call_text.c - see cli/call_text.h. */
#include "cli/call_text.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"

enum {
    NAME_BYTES_MAX = 64,
    VALUE_BYTES_MAX = 60,
    ARGS_BYTES_MAX = 200, /* of arguments that are not an object */
    ARGS_SHOWN_MAX = 16,
    VALUE_JSON_BYTES_MAX = 1 << 24,
};

/* At most `bytes` of the text, whole characters only. */
static struct str take_whole(struct str text, size_t bytes) {
    struct str head = str_take(text, bytes);
    head.len = utf8_complete_len(head);
    return head;
}

/* Text that is JSON already keeps its quotes and escapes; the rest is escaped. */
static void put_escaped(struct buf *out, struct str text, bool is_json) {
    if (is_json)
        buf_put_str(out, text);
    else
        buf_put_json_inner(out, text);
}

static bool put_short(struct buf *out, struct str text, size_t bytes, bool is_json) {
    if (text.len <= bytes) {
        put_escaped(out, text, is_json);
        return false;
    }
    put_escaped(out, take_whole(text, bytes), is_json);
    buf_printf(out, "... (%zu bytes)", text.len);
    return true;
}

bool short_text_put(struct str text, size_t bytes, struct buf *out) {
    return put_short(out, text, bytes, false);
}

static bool put_value(const struct json *value, struct buf *out) {
    struct str text = json_str(value);
    if (json_kind(value) == JS_TEXT && text.len > VALUE_BYTES_MAX) {
        buf_put_char(out, '"');
        buf_put_json_inner(out, take_whole(text, VALUE_BYTES_MAX));
        buf_printf(out, "...\" (%zu bytes)", text.len);
        return true;
    }
    struct buf whole;
    buf_init(&whole, VALUE_JSON_BYTES_MAX);
    json_put(value, &whole);
    const size_t bytes_max = json_kind(value) == JS_TEXT ? SIZE_MAX : VALUE_BYTES_MAX;
    bool is_short = put_short(out, buf_str(&whole), bytes_max, true);
    buf_deinit(&whole);
    return is_short;
}

static bool put_args(const struct json *args, struct buf *out) {
    bool is_short = false;
    uint32_t shown = 0;
    for (struct json_iter it = json_iter_first(args); json_iter_ok(&it); json_iter_next(&it)) {
        if (shown > 0) buf_put_text(out, ", ");
        if (shown == ARGS_SHOWN_MAX) {
            buf_printf(out, "... (%zu arguments)", json_count(args));
            return true;
        }
        is_short |= short_text_put(it.key, NAME_BYTES_MAX, out);
        buf_put_char(out, '=');
        is_short |= put_value(it.value, out);
        shown++;
    }
    return is_short;
}

/* NULL: the arguments are not an object. One that has a key twice is none: a command may read
 * another of the two values than the one that the user is shown. */
static struct json *parse_args(struct str args) {
    struct json_limits limits = json_limits_request;
    struct json *doc = NULL;
    limits.unique_keys = true;
    if (str_trim(args).len == 0) return json_map_create();
    if (json_parse(args, &limits, &doc, NULL) != ST_OK) return NULL;
    if (json_kind(doc) == JS_MAP) return doc;
    json_destroy(doc);
    return NULL;
}

bool call_args_are_whole(struct str args) {
    struct json *doc = parse_args(args);
    json_destroy(doc);
    return doc != NULL;
}

bool call_text_put(struct str name, struct str args, bool is_cut, struct buf *out) {
    buf_put_text(out, "-> ");
    bool is_short = short_text_put(name, NAME_BYTES_MAX, out);
    buf_put_char(out, '(');
    struct json *doc = is_cut ? NULL : parse_args(args);
    is_short |= doc ? put_args(doc, out) : short_text_put(args, ARGS_BYTES_MAX, out);
    if (is_cut)
        buf_put_text(out, " (cut)");
    else
        buf_put_text(out, doc ? ")" : ") (the arguments are not a JSON object)");
    json_destroy(doc);
    return is_short;
}

static bool is_plain_word(const char *word) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_-+=:,./@%^";
    return word[0] && strspn(word, plain) == strlen(word);
}

void command_text_put(char *const *argv, struct buf *out) {
    for (size_t i = 0; argv[i]; i++) {
        if (i > 0) buf_put_char(out, ' ');
        if (is_plain_word(argv[i]))
            buf_put_text(out, argv[i]);
        else
            buf_put_json_string(out, str_of(argv[i]));
    }
}
