/* base/file_out.h - a new file that appears under its name only when it is whole.
 *
 *     file_out_open -> file_out_write ... -> file_out_publish -> file_out_close
 *
 * Until it is published the file has no name at all, so that a process that is killed leaves
 * nothing. Where the file system has no such files it is called NAME.part and locked: a part that
 * a killed process has left is taken over by the next one that writes NAME. An existing NAME is
 * never replaced.
 *
 * Lifetime: the caller's storage; open, close. Thread: its owner.
 */
#ifndef BASE_FILE_OUT_H
#define BASE_FILE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

enum { FILE_OUT_PATH_BYTES = 4096 };

struct file_out {
    int fd;                         /* -1: closed */
    bool named;                     /* the file is called NAME.part */
    uint64_t bytes;                 /* written so far */
    char path[FILE_OUT_PATH_BYTES]; /* NAME */
};

/* ST_CREATE: NAME exists, or the folder does not or may not be written. with_name: use NAME.part
 * on every file system. */
enum status file_out_open(const char *path, bool with_name, struct file_out *out, struct err *err);

/* Reserve room on the disk for a file of so many bytes; where the file system cannot, look whether
 * there is as much now. ST_IO: there is not, or the system's limit of file size is below it. What
 * the file does not need in the end is given back when it is published. */
enum status file_out_reserve(struct file_out *out, uint64_t bytes, struct err *err);

/* Append. ST_IO: for example, the disk is full. */
enum status file_out_write(struct file_out *out, const void *bytes, size_t len, struct err *err);

/* A path by which this process can read what was written so far. */
void file_out_readable(const struct file_out *out, char path[FILE_OUT_PATH_BYTES]);

/* Write everything to the disk, then give the file its name. ST_CREATE: NAME exists by now. */
enum status file_out_publish(struct file_out *out, struct err *err);

/* A file that was not published is removed. May be called again. */
void file_out_close(struct file_out *out);

#endif
