/* base/mem.h - the only door to the heap.
 *
 * Every block comes from here, so that tests can make the N-th allocation fail (they wrap
 * malloc, calloc and realloc at link time) and so that sizes are multiplied in one checked
 * place. A NULL return is ordinary: the caller passes ST_NOMEM on.
 *
 * Thread: any. Memory: the caller owns what it gets and gives it to mem_free.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_alloc(size_t bytes);                       /* contents undefined; NULL when full  */
void *mem_zalloc(size_t bytes);                      /* zeroed                              */
void *mem_alloc_array(size_t count, size_t bytes);   /* NULL also when the product wraps    */
void *mem_zalloc_array(size_t count, size_t bytes);  /* the same, zeroed                    */
void *mem_realloc(void *ptr, size_t bytes);          /* on NULL the old block is untouched  */
void *mem_alloc_aligned(size_t align, size_t bytes); /* align: a power of two; mem_free it  */
char *mem_dup(const void *ptr, size_t bytes);        /* a copy with a NUL added behind it   */
void mem_free(void *ptr);                            /* NULL is fine                        */
void mem_trim(void); /* return free memory to the system; takes milliseconds for a large heap */

/* For a program, once, before it starts threads: a block of 256 KiB or more goes back to the system
 * when it is freed, and at most that much stays free at the end of each thread's heap. */
void mem_bound_unused(void);

#endif
