/* base/folder_out.h - a new folder that appears under its name only when all its files are whole.
 *
 *     folder_out_open -> files in folder_out_path ... -> folder_out_publish -> folder_out_close
 *
 * Until it is published the folder is called NAME.part and locked. A part that a killed process has
 * left is emptied and taken over by the next one that writes NAME. Its files are made with
 * base/file_out.h, so that a killed process leaves at most those that were whole. An existing NAME
 * is never replaced.
 *
 * Lifetime: the caller's storage; open, close. Thread: its owner.
 */
#ifndef BASE_FOLDER_OUT_H
#define BASE_FOLDER_OUT_H

#include "base/file_out.h"
#include "base/status.h"

/* The one folder that may be in it: what sentence-transformers calls the pooling of an encoder. */
#define FOLDER_OUT_INNER "1_Pooling"

struct folder_out {
    int fd;                         /* of NAME.part, which it locks; -1: closed */
    char path[FILE_OUT_PATH_BYTES]; /* NAME, without a slash at its end */
    char part[FILE_OUT_PATH_BYTES]; /* NAME.part */
};

/* ST_CREATE: NAME exists, the folder that it is to be in does not or may not be written, another
 * process is writing NAME, or NAME.part has a folder in it that is not FOLDER_OUT_INNER. */
enum status folder_out_open(const char *path, struct folder_out *out, struct err *err);

/* The path of a file in it, as long as it is not published. ST_CREATE: too long. */
enum status folder_out_path(const struct folder_out *out, const char *name,
                            char path[FILE_OUT_PATH_BYTES], struct err *err);

/* Make FOLDER_OUT_INNER in it; its files are "1_Pooling/a" for folder_out_path. */
enum status folder_out_make_inner(struct folder_out *out, struct err *err);

/* Give the folder its name; all its files are published and closed. ST_CREATE: NAME exists by
 * now. */
enum status folder_out_publish(struct folder_out *out, struct err *err);

/* What was not published is gone. A closed one is fine. */
void folder_out_close(struct folder_out *out);

#endif
