/* fault/fail_alloc.h - makes the N-th allocation fail.
 *
 * Programs under tests/fault are linked with malloc, calloc, realloc and aligned_alloc wrapped
 * (see tests/CMakeLists.txt): our own objects call the functions in fail_alloc.c, which count,
 * and refuse the one that was asked for. Libraries keep the real ones, but for jansson's between
 * fail_alloc_in_jansson(true) and (false).
 *
 *     for (long n = 0;; n++) {
 *         fail_alloc_at(n);
 *         enum status st = thing_under_test();
 *         if (!fail_alloc_stop()) break;        the thing needs no more than n allocations
 *         ... st must say ST_NOMEM, and nothing may be lost ...
 *     }
 *
 * Thread: one at a time.
 */
#ifndef FAULT_FAIL_ALLOC_H
#define FAULT_FAIL_ALLOC_H

#include <stdbool.h>

/* Let `count` more allocations succeed and the one after them fail. */
void fail_alloc_at(long count);

/* Count no more. True if an allocation did fail since fail_alloc_at. */
bool fail_alloc_stop(void);

/* Whether values of JSON trees are among the allocations that are counted and may fail. */
void fail_alloc_in_jansson(bool on);

#endif
