/* base/map_guard.c - see base/map_guard.h for the contract. */
#define _GNU_SOURCE
#include "base/map_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

/* `start` is stored last and cleared first, so that the handler never sees half an entry. */
struct map_guard {
    _Atomic uintptr_t start; /* 0: free */
    atomic_size_t len;
    atomic_bool is_damaged;
};

static struct map_guard guards[MAP_GUARDS_MAX];
static atomic_uint guard_end; /* entries from here on were never used */
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction old_action;
static uintptr_t page_bytes;

static struct map_guard *guard_of(uintptr_t addr) {
    unsigned end = atomic_load(&guard_end);
    for (unsigned i = 0; i < end; i++) {
        uintptr_t start = atomic_load(&guards[i].start);
        if (start && addr >= start && addr - start < atomic_load(&guards[i].len)) return &guards[i];
    }
    return NULL;
}

/* Everything behind the missing page is missing, too, where a file was cut. One call for all of it:
 * one signal for each page of a large file would take seconds. */
static bool put_zeros(const struct map_guard *g, uintptr_t addr) {
    uintptr_t page = addr & ~(page_bytes - 1);
    uintptr_t end = atomic_load(&g->start) + atomic_load(&g->len);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    /* The system call itself: the thread sanitizer takes mmap() for a write to these pages. */
    return syscall(SYS_mmap, page, end - page, PROT_READ, flags, -1, 0L) != -1;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    int saved_errno = errno;
    uintptr_t addr = (uintptr_t)info->si_addr;
    struct map_guard *g = guard_of(addr);
    if (g) {
        atomic_store(&g->is_damaged, true); /* first: a reader must not miss it */
        if (put_zeros(g, addr)) {
            errno = saved_errno;
            return;
        }
    }
    if (old_action.sa_flags & SA_SIGINFO)
        old_action.sa_sigaction(number, info, context);
    else if (old_action.sa_handler != SIG_DFL && old_action.sa_handler != SIG_IGN)
        old_action.sa_handler(number);
    else
        sigaction(SIGBUS, &old_action, NULL); /* the read is repeated and raises it again */
    errno = saved_errno;
}

static void install(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(SIGBUS, &action, &old_action) == 0);
}

struct map_guard *map_guard_add(const void *ptr, size_t len) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct map_guard *g = NULL;
    pthread_once(&once, install);
    CHECK((uintptr_t)ptr % page_bytes == 0);
    CHECK(len > 0);
    pthread_mutex_lock(&guards_lock);
    for (unsigned i = 0; i < MAP_GUARDS_MAX && !g; i++)
        if (atomic_load(&guards[i].start) == 0) g = &guards[i];
    if (g) {
        unsigned after = (unsigned)(g - guards) + 1;
        atomic_store(&g->is_damaged, false);
        atomic_store(&g->len, len);
        atomic_store(&g->start, (uintptr_t)ptr);
        if (after > atomic_load(&guard_end)) atomic_store(&guard_end, after);
    }
    pthread_mutex_unlock(&guards_lock);
    return g;
}

void map_guard_remove(struct map_guard *g) {
    if (!g) return;
    pthread_mutex_lock(&guards_lock);
    atomic_store(&g->start, 0);
    pthread_mutex_unlock(&guards_lock);
}

bool map_guard_is_damaged(const struct map_guard *g) { return atomic_load(&g->is_damaged); }
