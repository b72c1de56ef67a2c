/* kernels/cuda/kept.c - see kernels/cuda/kept.h for the contract.
 *
 * The file: struct head, `made_for` with its zero byte, the list. The checksum is of all that
 * follows it.
 */
#include "kernels/cuda/kept.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

enum { PATH_BYTES = 4096, FILE_BYTES_MAX = 1 << 20 };
static const char magic[8] = "jitneyK1";

struct head {
    char magic[sizeof(magic)];
    uint64_t checksum;
    uint32_t made_for_bytes, count;
};

/* FNV-1a, 64 bits. */
static uint64_t hash_of(uint64_t hash, const void *bytes, size_t count) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ at[i]) * 0x100000001B3u;
    return hash;
}
static const uint64_t HASH_BEGIN = 0xCBF29CE484222325u;

static bool path_of(const char *dir, const char *made_for, char *out, size_t bytes) {
    uint64_t hash = hash_of(HASH_BEGIN, made_for, strlen(made_for));
    int len = snprintf(out, bytes, "%s/cuda-%016llx.algorithms", dir, (unsigned long long)hash);
    return len > 0 && (size_t)len < bytes;
}

static uint64_t checksum_of(const struct head *h, const void *rest, size_t bytes) {
    uint64_t hash = hash_of(HASH_BEGIN, &h->made_for_bytes, 2 * sizeof(uint32_t));
    return hash_of(hash, rest, bytes);
}
_Static_assert(sizeof(struct head) == 24, "no padding: counts follow each other");

static uint32_t take(struct str file, const char *made_for, struct cuda_kept *out, uint32_t max) {
    struct head h;
    size_t name_bytes = strlen(made_for) + 1;
    if (file.len < sizeof(h)) return 0;
    memcpy(&h, file.ptr, sizeof(h));
    struct str rest = str_skip(file, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.made_for_bytes != name_bytes) return 0;
    if (rest.len != name_bytes + (size_t)h.count * sizeof(*out)) return 0;
    if (h.checksum != checksum_of(&h, rest.ptr, rest.len)) return 0;
    if (memcmp(rest.ptr, made_for, name_bytes) != 0) return 0;
    uint32_t count = h.count < max ? h.count : max;
    memcpy(out, rest.ptr + name_bytes, count * sizeof(*out));
    return count;
}

uint32_t cuda_kept_read(const char *dir, const char *made_for, struct cuda_kept *out,
                        uint32_t max) {
    char path[PATH_BYTES];
    struct buf file;
    struct err ignored = {{0}};
    if (!path_of(dir, made_for, path, sizeof(path))) return 0;
    buf_init(&file, FILE_BYTES_MAX);
    enum status st = file_read(path, &file, &ignored);
    uint32_t count = st == ST_OK ? take(buf_str(&file), made_for, out, max) : 0;
    buf_deinit(&file);
    return count;
}

enum status cuda_kept_write(const char *dir, const char *made_for, const struct cuda_kept *list,
                            uint32_t count, struct err *err) {
    char path[PATH_BYTES];
    struct buf rest, file;
    size_t name_bytes = strlen(made_for) + 1;
    struct head h = {.made_for_bytes = (uint32_t)name_bytes, .count = count};
    if (!path_of(dir, made_for, path, sizeof(path)))
        return err_set(err, ST_BAD, "%s: the name of the folder is too long", dir);
    buf_init(&rest, FILE_BYTES_MAX);
    buf_init(&file, FILE_BYTES_MAX);
    memcpy(h.magic, magic, sizeof(magic));
    buf_put(&rest, made_for, name_bytes);
    buf_put(&rest, list, count * sizeof(*list));
    h.checksum = checksum_of(&h, buf_str(&rest).ptr, buf_str(&rest).len);
    buf_put(&file, &h, sizeof(h));
    buf_put(&file, buf_str(&rest).ptr, buf_str(&rest).len);
    enum status st = buf_status(&rest) == ST_OK ? buf_status(&file) : buf_status(&rest);
    if (st == ST_OK) st = file_make_dirs(dir, err);
    if (st == ST_OK) st = file_write_atomic(path, buf_str(&file), err);
    buf_deinit(&file);
    buf_deinit(&rest);
    return st;
}
