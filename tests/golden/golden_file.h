/* golden/golden_file.h - reads prompts and what they should give (tests/golden/README.md).
 *
 * Include it after cmocka.h: a file that is not whole fails the test.
 */
#ifndef GOLDEN_GOLDEN_FILE_H
#define GOLDEN_GOLDEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cursor.h"
#include "base/file.h"
#include "base/mem.h"

/* A prompt, and a row of floats for each of its tokens, or one for all. */
struct prompt {
    uint32_t tokens, rows, width;
    int32_t *ids;
    float *values;
};

enum { PROMPTS_MAX = 8 };
struct golden {
    uint32_t count;
    struct prompt prompts[PROMPTS_MAX];
};

static inline void golden_read_prompt(struct cursor *c, uint32_t width, struct prompt *p) {
    p->tokens = cursor_u32(c);
    p->rows = cursor_u32(c);
    p->width = width;
    p->ids = mem_alloc_array(p->tokens, sizeof(int32_t));
    p->values = mem_alloc_array((size_t)p->rows * width, sizeof(float));
    for (uint32_t i = 0; i < p->tokens; i++) p->ids[i] = (int32_t)cursor_u32(c);
    for (uint32_t i = 0; i < p->rows * width; i++) p->values[i] = cursor_f32(c);
    assert_false(c->failed);
}

/* False: the file does not exist. */
static inline bool golden_read(const char *path, struct golden *g) {
    struct file_map map;
    if (file_map_open(path, &map, NULL) != ST_OK) return false;
    struct cursor c = cursor_of(map.ptr, map.len);
    assert_true(str_is(cursor_bytes(&c, 4), "JGLD"));
    assert_int_equal(cursor_u32(&c), 1);
    g->count = cursor_u32(&c);
    uint32_t width = cursor_u32(&c);
    assert_in_range(g->count, 1, PROMPTS_MAX);
    for (uint32_t i = 0; i < g->count; i++) golden_read_prompt(&c, width, &g->prompts[i]);
    assert_int_equal(cursor_left(&c), 0);
    file_map_close(&map);
    return true;
}

static inline void golden_free(struct golden *g) {
    for (uint32_t i = 0; i < g->count; i++) {
        mem_free(g->prompts[i].ids);
        mem_free(g->prompts[i].values);
    }
}

#endif
