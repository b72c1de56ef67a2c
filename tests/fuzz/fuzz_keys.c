/* tests/fuzz/fuzz_keys.c - any bytes as a key file.
 *
 * Of a file that is accepted, the first word of every line that is no comment and no tenant must
 * be a key; the error for a file that is not accepted names the line and quotes no word of it. */
#define _GNU_SOURCE /* memfd_create */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const struct keys *k, struct str line) {
    struct key_refusal why = {0};
    struct key_claim claim = {.prompt_tokens = 1, .answer_tokens = 4, .answer_least = 1};
    line = str_trim(line);
    if (line.len == 0 || line.ptr[0] == '#' || line.ptr[0] == '@') return;
    size_t len = 0;
    while (len < line.len && line.ptr[len] != ' ' && line.ptr[len] != '\t') len++;
    const struct key *key = keys_find(k, str_take(line, len));
    if (!key || !key->name[0] || key->tenant == 0) abort();
    if (!keys_begin((struct keys *)k, key, 1000000, &why)) {
        if (why.wait_ms <= 0 || !why.limit) abort();
        return;
    }
    if (!keys_reserve((struct keys *)k, key, &claim, 1000000, &why)) {
        if (!why.limit || claim.reserved != 0) abort();
    }
    keys_room(k, key, 2000000);
    keys_end((struct keys *)k, key, claim.reserved, claim.reserved, 3000000);
}

static void check(const struct keys *k, struct str text) {
    while (text.len > 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) : text.len;
        check_line(k, str_take(text, len));
        text = str_skip(text, end ? len + 1 : len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    struct keys *k = NULL;
    struct err err = {0};
    int fd = memfd_create("keys", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    enum status st = keys_create(path, &k, &err);
    if (st == ST_OK)
        check(k, (struct str){(const char *)data, size});
    else if (st != ST_BAD || !err.text[0])
        abort();
    keys_destroy(k);
    close(fd);
    return 0;
}
