/* hub/progress.c - see hub/progress.h for the contract. */
#include "hub/progress.h"

#include <stdio.h>

void progress_begin(struct progress *p, const char *label, uint64_t total_bytes) {
    if (!p) return;
    snprintf(p->label, sizeof(p->label), "%s", label);
    p->total_bytes = total_bytes;
    progress_update(p, 0);
}

void progress_update(struct progress *p, uint64_t done_bytes) {
    if (p && p->report) p->report(p->ctx, p->label, done_bytes, p->total_bytes);
}

void progress_set_total(struct progress *p, uint64_t total_bytes) {
    if (p) p->total_bytes = total_bytes;
}

void progress_end(struct progress *p) {
    if (p && p->report) p->report(p->ctx, NULL, 0, 0);
}
