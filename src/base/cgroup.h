/* base/cgroup.h - how much processor time and memory the process's control groups leave it.
 *
 * A limit may stand on the process's own group or on any group above it; the smallest counts.
 * Version 2 keeps it in cpu.max and memory.max, version 1 in cpu.cfs_quota_us, cpu.cfs_period_us
 * and memory.limit_in_bytes. In a container the root of the tree that is mounted is often the
 * process's own group although /proc/self/cgroup names a longer path; folders that are not there
 * are passed over, and the root is always looked at.
 */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

/* The quota in whole processors, rounded up; 0: none. `root` stands before /proc and /sys: "" is
 * the machine, a folder of a test's own is a pretended one. */
uint32_t cgroup_cpu_quota(const char *root);

/* Bytes between the limit and what is used now, cached files not counted; UINT64_MAX: no limit. */
uint64_t cgroup_memory_left(const char *root);

#endif
