/* page/page.h - the files of the page that the server shows to browsers.
 *
 * The files of web/ are part of the program: the build (cmake/embed_page.cmake) turns them into
 * arrays of bytes, so nothing is read at run time. "recording.html" is made by the build as well:
 * the whole page in one file, which shows a recording of steps when it is opened from a disk.
 *
 * Lifetime: constant. Thread: any. Memory: none of its own.
 */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include <stdint.h>

#include "base/str.h"

struct buf;

struct page_file {
    const char *name; /* "index.html" */
    const char *type; /* its content type */
    const char *etag; /* with its quotes; it changes with the bytes */
    struct str bytes;
};

enum { PAGE_FILES_MAX = 32 };

uint32_t page_count(void); /* at most PAGE_FILES_MAX */
const struct page_file *page_at(uint32_t i);
const struct page_file *page_find(struct str name); /* NULL: there is none */

/* A page in one file that shows the recording `json` (docs/page.md has its form). */
void page_put_recording(struct str json, struct buf *out);

#endif
