/* fault/fail_alloc.c - see fault/fail_alloc.h. */
#include "fault/fail_alloc.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *ptr, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *ptr, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);

static struct {
    bool armed, failed;
    long left; /* allocations that may still succeed */
} plan;

void fail_alloc_at(long count) {
    plan.armed = true;
    plan.failed = false;
    plan.left = count;
}

bool fail_alloc_stop(void) {
    plan.armed = false;
    return plan.failed;
}

void fail_alloc_in_jansson(bool on) {
    json_set_alloc_funcs(on ? __wrap_malloc : __real_malloc, free);
}

/* Only one fails, so that the code that cleans up after it is free to allocate. */
static bool must_fail(void) {
    if (!plan.armed || plan.failed || plan.left-- > 0) return false;
    plan.failed = true;
    return true;
}

void *__wrap_malloc(size_t bytes) { return must_fail() ? NULL : __real_malloc(bytes); }

void *__wrap_calloc(size_t count, size_t bytes) {
    return must_fail() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *ptr, size_t bytes) {
    return must_fail() ? NULL : __real_realloc(ptr, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes) {
    return must_fail() ? NULL : __real_aligned_alloc(align, bytes);
}
