/* engine/weight_cache.h - prepared weights on disk between starts.
 *
 *     open -> (every weight is prepared) -> loaded -> keep, maybe -> close
 *
 * Opening finds the image that was made of the very same model files for the same device layout
 * (where they are, their inode, size and times of change are its key) and lets the device read from
 * it. An image that is missing, damaged or of another model costs nothing but the time of making
 * the weights. Keeping checks what was read from an image and was not checked while it was read;
 * then it writes an image if weights had to be made, and removes older images of the same place and
 * layout. It does so on a thread of low priority; closing stops the thread at once.
 *
 * Lifetime: the model file and the device outlive it. Thread: one caller, but for the thread that
 * writes.
 */
#ifndef ENGINE_WEIGHT_CACHE_H
#define ENGINE_WEIGHT_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct device;
struct model_file;
struct weight_cache; /* opaque */

struct weight_cache_options {
    const char *dir;    /* of images; NULL: there is no cache */
    uint64_t max_bytes; /* all images together */
    bool verify;        /* look at every checksum of an image */
};

/* *out is NULL if there is no cache or the device keeps no images; the functions below accept NULL.
 * ST_NOMEM. */
enum status weight_cache_open(struct weight_cache **out, const struct weight_cache_options *options,
                              const struct model_file *file, const struct device *device,
                              struct err *err);

/* Every weight is prepared. A damaged image is removed. */
void weight_cache_loaded(struct weight_cache *c);

struct weight_report {
    uint32_t read, made; /* weights from the image; weights made of the model file */
    const char *note;    /* why an image that was there was not used, or not all of it; or "" */
    bool is_unverified;  /* not all that was read has been compared with its checksum yet */
};
struct weight_report weight_cache_report(const struct weight_cache *c);

/* Begin to check and to write, if there is anything of it to do. ST_NOMEM: there is no thread. */
enum status weight_cache_keep(struct weight_cache *c, struct err *err);

/* How keeping ended, once, when it has: true the first time. ST_CANCELLED, ST_UNAVAILABLE (another
 * process writes the same image) are no failures. ST_BAD: weights that are in use are damaged, and
 * their image was removed. `text`: what was checked or written, or why nothing was. */
bool weight_cache_kept(struct weight_cache *c, enum status *status, const char **text);

/* ST_IO: the check has found damaged weights; `err` says which. On any thread. */
enum status weight_cache_check(const struct weight_cache *c, struct err *err);

void weight_cache_close(struct weight_cache *c);

/* Remove what is kept under `dir` of the model at `path`, for any device and of whatever was there
 * before; what it took is added to *freed_bytes. While the model is there: links are followed. */
enum status weight_cache_forget(const char *dir, const char *path, uint64_t *freed_bytes,
                                struct err *err);

#endif
