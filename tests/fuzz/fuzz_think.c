/* fuzz/fuzz_think.c - a model's answer as an adversary would have it, searched for thoughts.
 *
 * The first byte chooses the form and whether the prompt has opened a thought, the second seeds the
 * cuts. Thought and text are the same for one piece, single bytes and pieces of changing length;
 * together they are never longer than the answer. An answer without thoughts is unchanged.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "unit/api/think_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FORMS = 6, WHOLE = 0, BYTES = 1, PIECES = 2, WAYS };

static size_t piece_bytes(int way, struct str text, uint32_t *cut) {
    *cut = *cut * 1664525u + 1013904223u;
    if (way == WHOLE) return text.len;
    return way == BYTES ? 1 : 1 + (*cut >> 16) % 13;
}

static void push(const struct think_form *form, bool is_open, struct str text, int way,
                 uint32_t cut, struct think_parts *parts) {
    const struct think_callbacks to = think_parts_init(parts);
    struct think_parser p;
    think_parser_init(&p, form, is_open);
    while (text.len) {
        struct str piece = str_take(text, piece_bytes(way, text, &cut));
        CHECK(think_parser_push(&p, piece, &to) == ST_OK);
        CHECK(think_parser_is_inside(&p) ? parts->text.len == 0 : true);
        text = str_skip(text, piece.len);
    }
    CHECK(think_parser_finish(&p, &to) == ST_OK);
    think_parser_deinit(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const struct think_form *form = think_forms[(data[0] >> 1) % FORMS];
    const bool is_open = data[0] & 1;
    const struct str text = {(const char *)data + 2, size - 2};
    struct think_parts parts[WAYS];
    CHECK(think_forms[FORMS - 1] && !think_forms[FORMS]);
    for (int way = 0; way < WAYS; way++) push(form, is_open, text, way, data[1], &parts[way]);
    for (int way = 1; way < WAYS; way++) {
        CHECK(str_eq(buf_str(&parts[way].thought), buf_str(&parts[0].thought)));
        CHECK(str_eq(buf_str(&parts[way].text), buf_str(&parts[0].text)));
    }
    CHECK(parts[0].thought.len + parts[0].text.len <= text.len);
    bool may_think = is_open || str_starts(str_trim(text), str_of(form->open));
    if (!may_think && !form->answer_close) CHECK(str_eq(buf_str(&parts[0].text), text));
    for (int way = 0; way < WAYS; way++) think_parts_deinit(&parts[way]);
    return 0;
}
