/* kernels/cpu/image.h - the head of an image: a file of packed weights, kept between starts.
 *
 *     0    8  magic "JITNEYPK"
 *     8    4  format of the file, IMAGE_VERSION
 *    12    4  version of the layouts, PACK_LAYOUT_VERSION
 *    16    4  rows of a panel
 *    20    4  1: made by a machine whose low bytes come first, 2: high bytes
 *    24   16  name of the table of kernels, zeros behind it
 *    40    4  number of entries
 *    44    4  bytes of the key
 *    48    8  bytes of the entries
 *    56    8  where the weights begin, a multiple of IMAGE_DATA_ALIGN
 *    64    8  bytes of the whole file
 *    72    8  checksum of what follows in the head, its seed being that of what is before
 *    80       the key: which files the weights were made of
 *             the entries, one for each weight, in the order of their bytes in the file:
 *                 2  bytes of the name, the name
 *                 1  bytes of the number format's name, that name
 *                 4  rows, 4 columns, 4 experts
 *                 8  where its panels begin, a multiple of IMAGE_ENTRY_ALIGN; 8 their bytes
 *                 8  their checksum
 *
 * Numbers are little-endian; panels are as the machine reads them. Checksums are XXH3, 64 bits.
 * Whatever is in such a file is hostile until checked; an image that is refused is no loss, as
 * the weights can always be packed again.
 *
 * Lifetime: an image is parsed, searched, destroyed; it borrows the head's bytes. Thread: any.
 */
#ifndef KERNELS_CPU_IMAGE_H
#define KERNELS_CPU_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

struct buf;

enum {
    IMAGE_VERSION = 1,
    IMAGE_FIXED_BYTES = 80,
    IMAGE_HEAD_BYTES_MAX = 64 << 20,
    IMAGE_DATA_ALIGN = 2 << 20, /* a huge page */
    IMAGE_ENTRY_ALIGN = 4096,
    IMAGE_TABLE_BYTES = 16,
};

/* What an image must have been made for. */
struct image_ident {
    struct str table; /* "avx2"; shorter than IMAGE_TABLE_BYTES */
    struct str key;
};

struct image_entry {
    struct str name;
    enum dtype type;
    uint32_t rows, cols, experts;
    uint64_t offset, bytes, checksum;
};

/* How long the head is, by its first IMAGE_FIXED_BYTES. ST_BAD: they begin no image that this
 * program reads, or the file has another length than they say. */
enum status image_head_bytes(struct str fixed, uint64_t file_bytes, size_t *out, struct err *err);

struct image; /* opaque */

/* `head`: as many bytes as image_head_bytes says. ST_BAD: why it is not taken; it is damaged, or
 * made for something else. */
enum status image_parse(struct str head, uint64_t file_bytes, const struct image_ident *id,
                        struct image **out, struct err *err);
void image_destroy(struct image *image); /* NULL is fine */

const struct image_entry *image_find(const struct image *image, struct str name); /* or NULL */
uint32_t image_count(const struct image *image);

/* Give each entry, in order, its place in a file; returns the bytes of that file. */
uint64_t image_lay_out(struct image_entry *entries, uint32_t count, const struct image_ident *id);

/* Append the head for entries that are laid out. */
void image_put_head(struct buf *out, const struct image_entry *entries, uint32_t count,
                    const struct image_ident *id, uint64_t file_bytes);

#endif
