/* page/page_int.h - the table that the build writes; see page/page.h.
 *
 * Lifetime: constant. Thread: any. Memory: none of its own.
 */
#ifndef PAGE_PAGE_INT_H
#define PAGE_PAGE_INT_H

#include "page/page.h"

extern const struct page_file page_files[];
extern const uint32_t page_file_count;

#endif
