/* engine/spill.c - see engine/spill.h for the contract. */
#define _GNU_SOURCE
#include "engine/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/size.h"

enum { PATH_BYTES = 4096, UNIQUE_CHARS = 6 };

/* All of it is claimed now where the file system can do that: a disk that fills up later would
 * otherwise end the process at a write. */
static bool claim(int fd, size_t bytes) {
    if (ftruncate(fd, (off_t)bytes) != 0) return false;
    return fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP;
}

/* A file without a name, `bytes` long, mapped. */
static enum status map_file(const char *dir, size_t bytes, uint8_t **out, struct err *err) {
    char path[PATH_BYTES], unique[UNIQUE_CHARS + 1] = "";
    memset(unique, 'X', UNIQUE_CHARS); /* mkostemp puts a name of its own there */
    int need = snprintf(path, sizeof(path), "%s/jitney-spill-%s", dir, unique);
    if (need < 0 || need >= (int)sizeof(path))
        return err_set(err, ST_CREATE, "%s: name too long for a spill file", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ST_CREATE, "%s: cannot create a spill file: %s", dir, strerror(errno));
    unlink(path);
    void *base = MAP_FAILED;
    if (claim(fd, bytes)) base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int why = errno;
    close(fd);
    if (base == MAP_FAILED)
        return err_set(err, ST_IO, "%s: cannot map a spill file of %zu MiB: %s", dir, bytes >> 20,
                       strerror(why));
    *out = base;
    return ST_OK;
}

/* One of the cache's blocks is several of the device's, side by side. */
static size_t slot_bytes_of(const struct kv_space *space, uint32_t tiles_per_block) {
    return kv_block_bytes(space) * tiles_per_block;
}

enum status spill_open(struct spill *s, const struct kv_memory *kv, uint32_t tiles_per_block,
                       uint32_t slots, const char *dir, struct err *err) {
    *s = (struct spill){
        .slots = slots, .tiles_per_block = tiles_per_block, .group_count = kv->group_count};
    for (uint32_t g = 0; g < kv->group_count && slots > 0; g++) {
        size_t bytes;
        s->slot_bytes[g] = slot_bytes_of(&kv->spaces[g], tiles_per_block);
        enum status st = ST_BAD;
        if (size_mul(s->slot_bytes[g], slots, &bytes))
            st = map_file(dir, bytes, &s->base[g], err);
        else
            err_set(err, ST_BAD, "%u spill slots are more than memory can address", slots);
        if (st == ST_OK) continue;
        spill_close(s);
        return st;
    }
    return ST_OK;
}

void spill_close(struct spill *s) {
    for (uint32_t g = 0; g < s->group_count; g++)
        if (s->base[g]) munmap(s->base[g], s->slot_bytes[g] * s->slots);
    *s = (struct spill){.slots = 0};
}

static uint8_t *block_at(const struct kv_space *space, uint32_t tiles, uint32_t block) {
    CHECK((block + 1) * (uint64_t)tiles <= space->block_count);
    return kv_tile(space, 0, block * tiles, 0);
}

static uint8_t *slot_at(const struct spill *s, uint32_t group, uint32_t slot) {
    CHECK(group < s->group_count);
    CHECK(slot < s->slots);
    return s->base[group] + s->slot_bytes[group] * slot;
}

void spill_out(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t block,
               uint32_t slot) {
    memcpy(slot_at(s, group, slot), block_at(&kv->spaces[group], s->tiles_per_block, block),
           s->slot_bytes[group]);
}

void spill_in(struct spill *s, const struct kv_memory *kv, uint32_t group, uint32_t slot,
              uint32_t block) {
    memcpy(block_at(&kv->spaces[group], s->tiles_per_block, block), slot_at(s, group, slot),
           s->slot_bytes[group]);
}

void kv_memory_copy(const struct kv_memory *kv, uint32_t tiles_per_block, uint32_t group,
                    uint32_t from, uint32_t to) {
    const struct kv_space *space = &kv->spaces[group];
    memcpy(block_at(space, tiles_per_block, to), block_at(space, tiles_per_block, from),
           slot_bytes_of(space, tiles_per_block));
}
