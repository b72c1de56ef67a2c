/* base/file.h - whole files: mapping, reading, writing so that no half file is ever seen.
 *
 * Every failure names the path and what the system said. ST_MISSING if it does not exist,
 * ST_CREATE if an output cannot be created, ST_NOMEM if the system has no memory for it (to map a
 * file), ST_IO otherwise and whenever the disk is full.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct buf;
struct map_guard;

/* Which file it is and whether it was written since: with the same numbers, the same bytes. What
 * was written last can be set back by any user; when the file was changed at all cannot. */
struct file_id {
    uint64_t device, inode, bytes;
    int64_t mtime_ns, ctime_ns;
    uint32_t mode; /* who may read it */
};

struct file_map {
    const uint8_t *ptr; /* NULL for an empty file */
    size_t len;
    struct file_id id; /* as it was when it was mapped */
    int fd;            /* open while ptr is not NULL */
    struct map_guard *guard;
};

/* Map a regular file for reading. The file may be cut or its disk may fail while it is mapped:
 * bytes that are missing read as zeros (base/map_guard.h), and file_map_check reports it. */
enum status file_map_open(const char *path, struct file_map *out, struct err *err);
void file_map_close(struct file_map *map); /* a closed or zeroed one is fine */
/* Are all bytes that were read so far the file's? ST_IO: missing ones were read as zeros. */
enum status file_map_check(const struct file_map *map, struct err *err);
/* Is the file shorter now than when it was mapped? Bytes of its last page may then read as zeros
 * without a mark. Costs a system call. */
bool file_map_is_cut(const struct file_map *map);

/* Let the system drop these pages of the map from memory; they come back from the file when
 * touched. For bytes that have been copied elsewhere. */
void file_map_release(const struct file_map *map, const void *ptr, size_t len);

/* Append the whole of `path` (or of standard input, for "-") to `out`. ST_BAD when it has more
 * bytes than the buffer may hold. */
enum status file_read(const char *path, struct buf *out, struct err *err);

/* A short text of the system's (/proc, /sys) into the caller's storage, without the heap. What does
 * not fit is cut off. ST_MISSING, ST_IO. */
enum status file_read_short(const char *path, char *storage, size_t bytes, struct str *out);

/* The file that a symbolic link points at, or that it would make; any other path as it is. A link
 * of /proc that stands for an open file is not followed. False: it does not fit, or the links form
 * a loop. */
bool file_follow(const char *path, char *out, size_t out_bytes);

/* It is written into and never replaced: a device, a pipe, or a name of an open file
 * (/dev/stdout). */
bool file_is_stream(const char *path);
/* To write at the end of a stream, or where the open file is now. -1: errno says why. */
int file_open_stream(const char *path);

/* Write under a temporary name in the same folder, sync, rename. A symbolic link stays: the file
 * that it points at is replaced. A stream is written straight into. */
enum status file_write_atomic(const char *path, struct str bytes, struct err *err);

bool file_exists(const char *path); /* anything at all there */
bool file_is_dir(const char *path);
bool file_is_regular(const char *path); /* false also if there is none */
int64_t file_size(const char *path);    /* -1 if there is none */

/* mkdir -p. */
enum status file_make_dirs(const char *path, struct err *err);

/* dir + "/" + name in a buffer of the caller's; false if it does not fit. */
bool path_join(char *out, size_t out_bytes, const char *dir, const char *name);
struct str path_base(const char *path); /* what follows the last slash */

#endif
