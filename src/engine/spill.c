/* engine/spill.c - see engine/spill.h for the contract. */
#define _GNU_SOURCE
#include "engine/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"

enum { PATH_BYTES = 4096, UNIQUE_CHARS = 6 };

/* All of it is claimed now where the file system can do that: a disk that fills up later would
 * otherwise end the process at a write. */
static bool claim(int fd, size_t bytes) {
    if (ftruncate(fd, (off_t)bytes) != 0) return false;
    return fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP;
}

/* A file without a name, `bytes` long: its descriptor. */
static enum status make_file(const char *dir, size_t bytes, int *out, struct err *err) {
    char path[PATH_BYTES], unique[UNIQUE_CHARS + 1] = "";
    memset(unique, 'X', UNIQUE_CHARS); /* mkostemp puts a name of its own there */
    int need = snprintf(path, sizeof(path), "%s/jitney-spill-%s", dir, unique);
    if (need < 0 || need >= (int)sizeof(path))
        return err_set(err, ST_CREATE, "%s: name too long for a spill file", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ST_CREATE, "%s: cannot create a spill file: %s", dir, strerror(errno));
    unlink(path);
    if (!claim(fd, bytes)) {
        int why = errno;
        close(fd);
        return err_set(
            err, ST_IO,
            "%s: cannot reserve %zu MiB for a spill file: %s; free disk space, set TMPDIR to "
            "another folder, or lower the knob spill_blocks",
            dir, bytes >> 20, strerror(why));
    }
    *out = fd;
    return ST_OK;
}

enum status spill_open(struct kv_space *space, const struct device *dev, uint32_t slots,
                       const char *dir, struct err *err) {
    size_t bytes;
    int fd;
    if (slots == 0) return ST_OK;
    if (!size_mul(space->block_bytes, slots, &bytes))
        return err_set(err, ST_BAD,
                       "knob spill_blocks is %u, which is more than memory can address", slots);
    TRY(make_file(dir, bytes, &fd, err));
    space->spill = dev->host_alloc(dev->self, bytes, fd);
    close(fd);
    if (!space->spill)
        return err_set(err, ST_NOMEM,
                       "cannot allocate %u spill blocks of %zu KiB (file in %s); lower the knob "
                       "spill_blocks, 0 turns swapping off",
                       slots, space->block_bytes >> 10, dir);
    space->spill_slots = slots;
    return ST_OK;
}

void spill_close(struct kv_space *space, const struct device *dev) {
    if (space->spill)
        dev->host_free(dev->self, space->spill, space->block_bytes * space->spill_slots);
    space->spill = NULL;
    space->spill_slots = 0;
}
