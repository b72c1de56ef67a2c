/* base/tree.h - a folder with everything in it: how big it is, and away with it.
 *
 * Links are never followed, so nothing outside the folder is counted or touched. Folders
 * nested deeper than the cache ever makes them are refused.
 */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include <stdint.h>

#include "base/status.h"

/* The bytes of all regular files below `path`; 0 if there is nothing. Files that come and go
 * meanwhile are counted or not. */
uint64_t tree_bytes(const char *path);

/* Remove `path` and all below it, adding what that freed to *freed_bytes (may be NULL). Fine
 * if there is nothing. */
enum status tree_remove(const char *path, uint64_t *freed_bytes, struct err *err);

#endif
