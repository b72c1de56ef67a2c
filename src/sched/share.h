/* sched/share.h - what one tenant may take while there are others; README.md, "Tenants".
 *
 * Internal to the scheduler. Every function but sched_share_verify and the two for blocks takes
 * constant time; those loop over the running sequences.
 */
#ifndef SCHED_SHARE_H
#define SCHED_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/seq.h"

struct sched;
struct tenant_use;

struct sched_shares {
    struct tenant_use *tenants; /* by the tenant's number */
    uint32_t running_tenants;   /* that have running sequences */
    uint32_t live_count;        /* live sequences with has_share */
    int64_t order_floor;        /* the largest `order` of an admitted sequence */
};

struct tenant_use *sched_share_create(void); /* freed by mem_free; NULL: out of memory */
/* A sequence is submitted (sets its `order`), ends, starts and stops to run. */
void sched_share_submit(struct sched *s, seq_idx i, int64_t now_us);
void sched_share_end(struct sched *s, seq_idx i);
void sched_share_start(struct sched *s, seq_idx i);
void sched_share_stop(struct sched *s, seq_idx i);
void sched_share_reorder(struct sched *s, seq_idx i); /* set its `order` anew */
/* Is there a batch slot that it may take? */
bool sched_share_may_run(const struct sched *s, seq_idx i);
/* Its tenant is above its share: it waits until the next plan. Does it? */
void sched_share_skip(struct sched *s, seq_idx i);
bool sched_share_is_skipped(const struct sched *s, seq_idx i);
/* Would its tenant be above its share of the blocks with `need` more? */
bool sched_share_is_above(const struct sched *s, seq_idx i, uint32_t need);
/* Blocks that must stay free if it takes `need` more. 0: its tenant is within its share, or `left`,
 * the blocks that will stay free, is enough. */
uint32_t sched_share_spare(const struct sched *s, seq_idx i, uint32_t need, uint64_t left);
/* A plan has a row of its prompt. */
void sched_share_took_turn(struct sched *s, seq_idx i);
/* The order of prompts: the tenant with the oldest turn, then policy order. */
bool sched_share_goes_before(const struct sched *s, seq_idx a, seq_idx b);
void sched_share_verify(const struct sched *s);

#endif
