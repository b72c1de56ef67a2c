/* spec/drafter_list.c - every drafter that guesses from text, in the order of --help. */
#include <string.h>

#include "spec/drafter.h"

extern const struct drafter drafter_ngram, drafter_suffix, drafter_predicted;

const struct drafter *const drafters[] = {
    &drafter_ngram,
    &drafter_suffix,
    &drafter_predicted,
    NULL,
};

const struct drafter *drafter_find(const char *name) {
    for (const struct drafter *const *d = drafters; *d; d++)
        if (strcmp((*d)->name, name) == 0) return *d;
    return NULL;
}
