/* fuzz/fuzz_image.c - the head of an image of weights that an attacker wrote, as it is and with its
 * version of the layouts and its checksum made right, in a file that has the length it says. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/image.h"
#include "kernels/cpu/pack.h"
#include "unit/kernels/cpu/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const uint8_t *head, size_t size) {
    static const struct image_ident ident = {.table = {"portable", 8}, .key = {"key", 3}};
    struct str bytes = {(const char *)head, size};
    struct image *image;
    struct err err = {{0}};
    uint64_t file_bytes = 0;
    for (uint32_t i = 0; size >= IMAGE_FIXED_BYTES && i < 8; i++)
        file_bytes |= (uint64_t)head[64 + i] << 8 * i;
    if (image_parse(bytes, file_bytes, &ident, &image, &err) != ST_OK) {
        CHECK(err.text[0]);
        return;
    }
    CHECK(!image_find(image, STR("no such name")));
    CHECK(image_count(image) <= size);
    image_destroy(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = mem_alloc(size ? size : 1);
    CHECK(copy);
    memcpy(copy, data, size);
    use(copy, size);
    if (size >= IMAGE_FIXED_BYTES) copy[12] = PACK_LAYOUT_VERSION;
    seal(copy, size);
    use(copy, size);
    mem_free(copy);
    return 0;
}
