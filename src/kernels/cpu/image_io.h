/* kernels/cpu/image_io.h - panels from an image and into one.
 *
 * Panels are read, by all threads at once, into the huge pages in which packing would have made
 * them, rather than used where the file is mapped: mapped files lie in small pages, which cost
 * every token of every answer more than the copy costs once (docs/performance.md has figures);
 * and a file that is cut short under a reader is an error to a read, but a signal to a map.
 *
 * Lifetime: a source is opened before the first weight is prepared and closed after the last.
 * Thread: a source's one caller; image_write beside anything that changes no weights.
 */
#ifndef KERNELS_CPU_IMAGE_IO_H
#define KERNELS_CPU_IMAGE_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/device.h"
#include "kernels/cpu/image.h"

struct list;
struct packed;
struct pool;

struct image_source; /* opaque */

/* ST_MISSING: there is no such file, or not for us. ST_BAD, ST_IO, ST_NOMEM: why it cannot be
 * used. */
enum status image_source_open(struct image_source **out, const char *path,
                              const struct image_ident *id, bool verify, struct err *err);

/* Fill zeroed panels. False: the image does not hold that weight, or it cannot be read or fails
 * its checksum (looked at if `verify`); the panels are zero again. */
bool image_source_read(struct image_source *s, struct packed *p, struct pool *pool);

/* ST_BAD: what was wrong with a weight that could not be taken. NULL is fine. */
enum status image_source_close(struct image_source *s, struct err *err);

/* Compare the weights that were read without `verify` with their checksums; as device_images.check.
 */
enum status image_check(const struct list *weights, const struct device_image_check *check,
                        struct err *err);

/* The size of an image of these weights (struct packed, by in_device). ST_NOMEM. */
enum status image_file_bytes(const struct list *weights, const struct image_ident *id,
                             uint64_t *bytes, struct err *err);

/* Writes an image: the weights in the order of the list, the head last, so that a file whose
 * writing was interrupted is not taken for an image. */
enum status image_write(const struct list *weights, const struct image_ident *id,
                        const struct device_image_out *out, struct err *err);

#endif
