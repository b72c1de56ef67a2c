/* base/cgroup.h - how much processor time the process's control groups leave it.
 *
 * A quota may stand on the process's own group or on any group above it; the smallest counts.
 * Version 2 keeps it in cpu.max, version 1 in cpu.cfs_quota_us and cpu.cfs_period_us. In a
 * container the root of the tree that is mounted is often the process's own group although
 * /proc/self/cgroup names a longer path; folders that are not there are passed over, and the
 * root is always looked at.
 */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

/* The quota in whole processors, rounded up; 0: none. `root` stands before /proc and /sys: "" is
 * the machine, a folder of a test's own is a pretended one. */
uint32_t cgroup_cpu_quota(const char *root);

#endif
