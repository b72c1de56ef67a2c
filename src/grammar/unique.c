/* grammar/unique.c - uniqueItems where items are of any kind: whether the item that ends is new.
 *
 * States do not know what was read. A row says for a byte that ends an item which state follows if
 * the item is new and which if it is not. The matcher keeps the text of the array and decides.
 */
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "grammar/grammar_int.h"

enum { ARRAY_BYTES_MAX = 256 << 10, ARRAY_DEPTH_MAX = 200 };

/* Where the innermost array begins that is open at the end; SIZE_MAX: none, or it nests too deep.
 * The text begins with an array. */
static size_t innermost_array(struct str text) {
    size_t open[ARRAY_DEPTH_MAX];
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '[' || c == '{')) {
            if (depth == ARRAY_DEPTH_MAX) return SIZE_MAX;
            open[depth++] = i;
        } else if (!in_string && (c == ']' || c == '}') && depth > 0)
            depth--;
    }
    return depth ? open[depth - 1] : SIZE_MAX;
}

static bool is_number(char c) { return (c >= '0' && c <= '9') || strchr("+-.eE", c); }

/* The array with its numbers as texts, so that those which differ behind the digits of a double
 * differ: the first character of a text says what it was. A number has one spelling. */
static void put_array(struct buf *out, struct str text) {
    bool in_string = false, in_number = false;
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        const bool is_digit = !in_string && c && is_number(c);
        /* The `e` of a word is no number. */
        const bool begins = is_digit && !in_number && c != 'e' && c != 'E';
        if (in_number && !is_digit) buf_put_char(out, '"');
        if (begins) buf_put_text(out, "\"#");
        in_number = begins || (in_number && is_digit);
        buf_put_char(out, c);
        if (in_string && c == '\\' && i + 1 < text.len) buf_put_char(out, text.ptr[++i]);
        if (c != '"') continue;
        in_string = !in_string;
        if (in_string) buf_put_char(out, '$');
    }
    buf_put_text(out, in_number ? "\"]" : "]");
}

/* An array that cannot be read has no new item: nothing invalid is accepted. */
bool unique_is_new(struct grammar *g, struct str text) {
    const struct json_limits limits = {
        .bytes_max = ARRAY_BYTES_MAX, .depth_max = ARRAY_DEPTH_MAX, .values_max = ARRAY_BYTES_MAX};
    const size_t start = innermost_array(text);
    struct json *list = NULL;
    struct buf array;
    if (start == SIZE_MAX) return false;
    buf_init(&array, ARRAY_BYTES_MAX);
    put_array(&array, str_skip(text, start));
    enum status st = buf_status(&array);
    if (st == ST_OK) st = json_parse(buf_str(&array), &limits, &list, NULL);
    if (st == ST_NOMEM) g->budget.status = ST_NOMEM;
    size_t count = json_count(list);
    bool is_new = st == ST_OK && count > 0;
    for (size_t i = 0; i + 1 < count && is_new; i++)
        is_new = !json_same(json_at(list, i), json_at(list, count - 1));
    json_destroy(list);
    buf_deinit(&array);
    return is_new;
}
