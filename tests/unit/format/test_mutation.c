/* Goal:   no damage to a GGUF does worse than a refusal in one sentence: no crash, no more than
 *         1 GiB of memory; and where a damaged file is accepted, everything in it can be read.
 * Method: every truncation and many single-byte changes of a small file; 1,000 seeded ones of
 *         the head of a real model, if there is one: JITNEY_TEST_MODEL, or the default model in
 *         the cache. Changed files lie in blocks of exactly their size. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/mem.h"
#include "format/format_int.h"
#include "unit/format/make_files.h"
#include "unit/format/use_model.h"

enum { CHANGES = 500, CUTS = 500, MEMORY_KIB_MAX = 1 << 20 };

static const char name[] = "damaged.gguf";

struct tally {
    unsigned refused, accepted;
};

static void try_bytes(struct str bytes, struct tally *tally) {
    struct err err = {0};
    struct model_file *f;
    enum status st = gguf_open_memory(bytes, name, &f, &err);
    if (st == ST_OK) {
        use_model(f);
        model_file_close(f);
        tally->accepted++;
        return;
    }
    assert_int_equal(st, ST_BAD);
    if (!is_sentence(&err, name)) fail_msg("not a sentence: \"%s\"", err.text);
    tally->refused++;
}

static void check_memory(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_in_range(usage.ru_maxrss, 1, MEMORY_KIB_MAX);
}

static void cut(const char *bytes, size_t len, struct tally *tally) {
    char *copy = mem_alloc(len);
    assert_non_null(copy);
    if (len) memcpy(copy, bytes, len);
    try_bytes((struct str){copy, len}, tally);
    mem_free(copy);
}

static void test_every_truncation_of_a_small_file(void **state) {
    (void)state;
    struct buf b;
    struct tally tally = {0};
    buf_init(&b, FILE_BYTES_MAX);
    put_small_gguf(&b);
    for (size_t len = 0; len < b.len; len++) cut(b.ptr, len, &tally);
    assert_int_equal(tally.refused, b.len); /* the last tensor ends with the file */
    buf_deinit(&b);
    check_memory();
}

static void test_single_bytes_of_a_small_file(void **state) {
    (void)state;
    struct buf b;
    struct tally tally = {0};
    buf_init(&b, FILE_BYTES_MAX);
    put_small_gguf(&b);
    char *copy = mem_alloc(b.len);
    assert_non_null(copy);
    memcpy(copy, b.ptr, b.len);
    for (size_t i = 0; i < b.len; i++) {
        for (int bit = 0; bit < 10; bit++) {
            copy[i] = (char)(bit < 8 ? b.ptr[i] ^ 1 << bit : bit == 8 ? 0 : 0xFF);
            try_bytes((struct str){copy, b.len}, &tally);
        }
        copy[i] = b.ptr[i];
    }
    mem_free(copy);
    buf_deinit(&b);
    assert_true(tally.refused > 1000);
    assert_true(tally.accepted > 1000);
    check_memory();
}

static bool find_model(char *path, size_t path_bytes) {
    static const struct {
        const char *variable, *rest;
    } places[] = {
        {"JITNEY_TEST_MODEL", ""},
        {"JITNEY_CACHE", "/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"XDG_CACHE_HOME", "/jitney/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"HOME", "/.cache/jitney/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const char *value = getenv(places[i].variable);
        if (!value) continue;
        int len = snprintf(path, path_bytes, "%s%s", value, places[i].rest);
        if (len > 0 && (size_t)len < path_bytes && file_size(path) > 0) return true;
    }
    return false;
}

/* Where the data of the tensors begins: what lies before is the head. */
static size_t head_bytes(struct str file) {
    struct err err = {0};
    struct model_file *f;
    if (gguf_open_memory(file, name, &f, &err) != ST_OK) fail_msg("%s", err.text);
    assert_true(tensor_count(f) > 0);
    size_t first = file.len;
    for (size_t i = 0; i < tensor_count(f); i++) {
        size_t at = (size_t)((const char *)tensor_at(f, i)->data - file.ptr);
        if (at < first) first = at;
    }
    model_file_close(f);
    return first;
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 20;
}

/* Damage the first bytes as often as the later ones: most of a head is vocabulary, whose loss
 * is harmless; keys and tensor records are at its ends. */
static size_t pick(uint64_t *seed, size_t head) {
    uint64_t kind = next(seed) % 3;
    uint64_t span = head < 4096 ? head : 4096;
    if (kind == 0) return (size_t)(next(seed) % span);
    if (kind == 1) return (size_t)(head - 1 - next(seed) % span);
    return (size_t)(next(seed) % head);
}

static void test_a_thousand_damages_to_a_real_model(void **state) {
    (void)state;
    char path[4096];
    struct file_map map;
    struct err err = {0};
    if (!find_model(path, sizeof(path))) skip();
    if (file_map_open(path, &map, &err) != ST_OK) fail_msg("%s", err.text);
    /* A private copy of the address range: a changed byte costs a page. */
    struct str file = {(const char *)map.ptr, map.len};
    size_t head = head_bytes(file);
    char *own = mmap(NULL, map.len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(own != MAP_FAILED);
    memcpy(own, map.ptr, head);
    struct tally tally = {0};
    uint64_t seed = 20240901;
    for (int i = 0; i < CHANGES; i++) {
        size_t at = pick(&seed, head);
        own[at] = (char)(own[at] ^ (1 + next(&seed) % 255));
        try_bytes((struct str){own, map.len}, &tally);
        own[at] = file.ptr[at];
    }
    for (int i = 0; i < CUTS; i++) cut(file.ptr, pick(&seed, head), &tally);
    munmap(own, map.len);
    file_map_close(&map);
    print_message("%u refused, %u accepted\n", tally.refused, tally.accepted);
    assert_int_equal(tally.refused + tally.accepted, CHANGES + CUTS);
    assert_true(tally.refused > CUTS);
    check_memory();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_truncation_of_a_small_file),
        cmocka_unit_test(test_single_bytes_of_a_small_file),
        cmocka_unit_test(test_a_thousand_damages_to_a_real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
