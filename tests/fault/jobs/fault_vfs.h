/* fault/jobs/fault_vfs.h - a VFS of SQLite whose calls fail when a test says so, and whose disk can
 * lose its power.
 *
 * It wraps the default VFS under the name FAULT_VFS_NAME; files are real ones. Syncs are not passed
 * on, so that thousands of runs are quick: what a sync means is modelled here.
 *
 *     fault_vfs_register();
 *     fault_vfs_plan(&(struct fault_plan){.kind = FAULT_WRITE, .at = k, .result = FAULT_IOERR});
 *     ... the k-th write from here on fails (k from 0), with `stays` all later ones too ...
 *     bool fired = fault_vfs_heal();
 *
 *     fault_power_begin();            from here on the content of every file is tracked
 *     fault_power_plan(k);            the power is cut at the k-th write, truncation or sync
 *     ... after that, every call fails; close everything ...
 *     fault_power_restore(&rng);      files are what the disk has kept
 *
 * What the disk keeps: all that was synced, and of the rest any part: a write may be there, be
 * missing, or be there in some of its sectors of 512 bytes, whatever became of earlier ones.
 *
 * Thread: any; the state is one for the process.
 */
#ifndef FAULT_JOBS_FAULT_VFS_H
#define FAULT_JOBS_FAULT_VFS_H

#include <stdbool.h>
#include <stdint.h>

#define FAULT_VFS_NAME "fault"

struct rng;

enum fault_kind {
    FAULT_NONE,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_SYNC,
    FAULT_TRUNCATE,
    FAULT_OPEN,
    FAULT_DELETE,
    FAULT_ACCESS,
    FAULT_SIZE,
    FAULT_LOCK,
    FAULT_SHM_MAP,
    FAULT_SHM_LOCK,
    FAULT_KINDS,
};
const char *fault_kind_name(enum fault_kind kind);

enum fault_result {
    FAULT_IOERR, /* it did nothing and failed */
    FAULT_SHORT, /* a write: half of it, then it failed */
    FAULT_FULL,  /* no space */
    FAULT_LATE,  /* it works, after 20 ms */
    FAULT_RESULTS,
};
const char *fault_result_name(enum fault_result result);

struct fault_plan {
    enum fault_kind kind;
    enum fault_result result;
    uint64_t at;
    bool stays;
};

void fault_vfs_register(void);
void fault_vfs_plan(const struct fault_plan *plan);
bool fault_vfs_heal(void);                      /* no more faults; true if one had happened */
uint64_t fault_vfs_count(enum fault_kind kind); /* calls since the last plan or heal */

void fault_power_begin(void);
void fault_power_plan(uint64_t at);
bool fault_power_is_cut(void);
void fault_power_restore(struct rng *rng);

/* Let the memory of SQLite come from here: the `at`-th allocation fails, with `stays` all later
 * ones too. Once, before anything else of SQLite. */
void fault_memory_register(void);
void fault_memory_plan(uint64_t at, bool stays);
bool fault_memory_heal(void);

#endif
