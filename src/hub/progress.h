/* hub/progress.h - how a transfer reports how far it is.
 *
 * Nothing in this folder writes to a terminal. A transfer calls the caller's function with a label
 * and two byte counts; the caller shows them (cli/progress_bar.h) or passes no function.
 *
 *     progress_begin(p, "smollm2", total_bytes);
 *     progress_update(p, done_bytes);              for every piece: the caller limits the rate
 *     progress_end(p);
 *
 * A NULL progress is accepted by every function and does nothing.
 *
 * Lifetime: the caller's storage; owns nothing. Thread: its owner. Memory: none.
 */
#ifndef HUB_PROGRESS_H
#define HUB_PROGRESS_H

#include <stdint.h>

enum { PROGRESS_LABEL_BYTES = 48 };

/* `label` names the transfer; NULL: it has ended. total_bytes 0: not known. */
typedef void progress_fn(void *ctx, const char *label, uint64_t done_bytes, uint64_t total_bytes);

struct progress {
    progress_fn *report; /* may be NULL */
    void *ctx;           /* for `report` */
    char label[PROGRESS_LABEL_BYTES];
    uint64_t total_bytes; /* 0: not known */
};

void progress_begin(struct progress *p, const char *label, uint64_t total_bytes);
void progress_update(struct progress *p, uint64_t done_bytes);
void progress_set_total(struct progress *p, uint64_t total_bytes); /* once it is known */
void progress_end(struct progress *p);

#endif
