/* engine/image_store.h - the folder of images: whose file is which, and how much room there is.
 *
 *     DIR/PLACE-LAYOUT-KEY.jpk          an image, named by hashes: of where its model is, of what
 *                                       it was made for, and of its whole key
 *     DIR/PLACE-LAYOUT-KEY.PID-N.part   one that is being written; its writer holds a lock on it
 *
 * An image appears under its name complete, by a rename. All images together take at most
 * max_bytes, and no image is begun that would leave less than a tenth of the disk or a GiB free,
 * unless it takes at most a hundredth of what is free.
 * To make room, the least recently used images are removed first (a use renews the file's time of
 * change). A part whose lock is free has lost its writer and is removed by the next process that
 * writes.
 *
 * Lifetime: a store is a value that borrows its folder's name; a part is begun, then committed or
 * abandoned. Thread: any; other processes may use the folder at the same time.
 */
#ifndef ENGINE_IMAGE_STORE_H
#define ENGINE_IMAGE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { IMAGE_PATH_BYTES = 4096 };

struct image_store {
    const char *dir; /* need not exist yet */
    uint64_t max_bytes;
    bool is_private; /* images are for their owner to read, else for all whom the umask lets */
};

struct image_key {
    struct str place;  /* where the model is: what its images have in common */
    struct str layout; /* what it was made for; of one place and layout only one image is of use */
    struct str all;    /* with everything else that images differ in */
};

/* Where the image for this key is, or would be. ST_CREATE: the name is too long. */
enum status image_store_path(const struct image_store *s, const struct image_key *key,
                             char path[IMAGE_PATH_BYTES], struct err *err);

/* Note that it was used. */
void image_store_touch(const char *path);

struct image_part {
    int fd;
    char path[IMAGE_PATH_BYTES], final_path[IMAGE_PATH_BYTES];
};

/* An empty file for an image of so many bytes. ST_FULL: there is no room; ST_UNAVAILABLE: another
 * process is writing the same one; ST_CREATE, ST_IO: what the system says. */
enum status image_store_begin(const struct image_store *s, const struct image_key *key,
                              uint64_t bytes, struct image_part *out, struct err *err);
/* What was written takes its name. The part is gone, also on failure. */
enum status image_store_commit(struct image_part *part, struct err *err);
void image_store_abandon(struct image_part *part);

/* Remove all images of the model in this place, and the parts that ended writers left; the bytes
 * removed are added to *freed_bytes. ST_IO: what could not be removed. */
enum status image_store_remove(const struct image_store *s, struct str place, uint64_t *freed_bytes,
                               struct err *err);

/* Remove images of the same place and layout under other keys: their model files have changed.
 * Failures are ignored: what stays is removed later as least recently used. */
void image_store_remove_older(const struct image_store *s, const struct image_key *key);

/* Is a disk of `disk_bytes`, `free_bytes` of them free, left with enough after `bytes` more? */
bool image_store_disk_fits(uint64_t disk_bytes, uint64_t free_bytes, uint64_t bytes);

#endif
