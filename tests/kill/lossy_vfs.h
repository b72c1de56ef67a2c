/* kill/lossy_vfs.h - a disk that loses what was not synced, as a VFS of SQLite.
 *
 * What SQLite writes stays in the memory of the process until it asks for a sync; then all of it is
 * written to the file, in sectors of 512 bytes and in random order. So `kill -9` does to a database
 * what a power failure does: writes since the last sync are gone, and those of a sync that was
 * interrupted are there in part. Some sectors reach the file before the sync, as a disk is free to
 * do; the seed decides which.
 *
 *     xWrite --> sectors in memory --xSync--> the file
 *                       +--by chance--> the file
 *
 * The real files take the part of the disk: they are not synced themselves. Files are made and
 * removed at once, and so is the shared memory beside a log, which SQLite makes again after a
 * crash.
 *
 * Thread: any. Memory: the sectors that were written since the last sync.
 */
#ifndef KILL_LOSSY_VFS_H
#define KILL_LOSSY_VFS_H

#include <stdint.h>

#define LOSSY_VFS_NAME "lossy"

/* Register the VFS above the default one and make it the default. SQLITE_OK or an error of SQLite.
 * It stays for the life of the process. */
int lossy_vfs_register(uint64_t seed);

#endif
