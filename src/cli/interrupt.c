/* cli/interrupt.c - see cli/interrupt.h. */
#include "cli/interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "cli/cli.h"

struct interrupt {
    pthread_t thread;
    sigset_t set;
    int pipe[2];          /* read end, write end; both non-blocking */
    pthread_mutex_t lock; /* protects what follows */
    _Atomic bool *flag;   /* NULL: idle */
    bool loading, ending;
};

/* Handle one SIGINT; false: the thread must end. */
static bool handle(struct interrupt *i) {
    pthread_mutex_lock(&i->lock);
    bool ending = i->ending;
    if (!ending && i->loading) _exit(EXIT_SIGINT);
    if (!ending && i->flag) atomic_store(i->flag, true);
    if (!ending && !i->flag) {
        ssize_t put = write(i->pipe[1], "", 1); /* a full pipe is readable already */
        (void)put;
    }
    pthread_mutex_unlock(&i->lock);
    return !ending;
}

static void *wait_for_signals(void *ctx) {
    struct interrupt *i = ctx;
    int number;
    do {
        while (sigwait(&i->set, &number) != 0) {
        }
    } while (handle(i));
    return NULL;
}

static bool open_pipe(int ends[2]) {
    if (pipe(ends) != 0) return false;
    for (int e = 0; e < 2; e++) {
        fcntl(ends[e], F_SETFL, O_NONBLOCK);
        fcntl(ends[e], F_SETFD, FD_CLOEXEC);
    }
    return true;
}

enum status interrupt_create(struct interrupt **out, struct err *err) {
    struct interrupt *i = mem_zalloc(sizeof(*i));
    if (!i) return err_set(err, ST_NOMEM, "out of memory");
    if (!open_pipe(i->pipe)) {
        mem_free(i);
        return err_set(err, ST_UNAVAILABLE, "cannot create a pipe");
    }
    i->loading = true;
    sigemptyset(&i->set);
    sigaddset(&i->set, SIGINT);
    CHECK(pthread_mutex_init(&i->lock, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &i->set, NULL) == 0);
    if (pthread_create(&i->thread, NULL, wait_for_signals, i) != 0) {
        pthread_sigmask(SIG_UNBLOCK, &i->set, NULL);
        pthread_mutex_destroy(&i->lock);
        close(i->pipe[0]);
        close(i->pipe[1]);
        mem_free(i);
        return err_set(err, ST_UNAVAILABLE, "cannot create a thread");
    }
    *out = i;
    return ST_OK;
}

void interrupt_destroy(struct interrupt *i) {
    if (!i) return;
    pthread_mutex_lock(&i->lock);
    i->ending = true;
    pthread_mutex_unlock(&i->lock);
    pthread_kill(i->thread, SIGINT);
    pthread_join(i->thread, NULL);
    pthread_mutex_destroy(&i->lock);
    close(i->pipe[0]);
    close(i->pipe[1]);
    mem_free(i);
}

void interrupt_settle(struct interrupt *i) {
    pthread_mutex_lock(&i->lock);
    i->loading = false;
    pthread_mutex_unlock(&i->lock);
}

void interrupt_aim(struct interrupt *i, _Atomic bool *flag) {
    pthread_mutex_lock(&i->lock);
    i->flag = flag;
    pthread_mutex_unlock(&i->lock);
}

int interrupt_fd(const struct interrupt *i) { return i->pipe[0]; }

bool interrupt_take(struct interrupt *i) {
    char bytes[64];
    bool any = false;
    while (read(i->pipe[0], bytes, sizeof(bytes)) > 0) any = true;
    return any;
}
