/* fault/fail_call.h - makes the k-th call of the file system fail, be short, be interrupted, be
 * late or be the last one of the process.
 *
 *     fail_call_plan(&(struct fail_call){.call = CALL_RENAME, .how = FAIL_IO, .at = k});
 *     ... the k-th rename from here on fails (k from 0), with `stays` all later ones too ...
 *     if (!fail_call_heal()) break;        there are no more than k
 *
 * A program that includes this names the functions for the linker in its first comment:
 * (wrap) open mkdir mkstemp stat lstat fstat fchmod flock read pread write pwrite ftruncate fsync
 * fdatasync fopen fwrite fflush fclose mmap rename unlink
 * So our own objects call what is here; libraries (SQLite: fault/jobs/fault_vfs.h) do not.
 *
 * Thread: one at a time.
 */
#ifndef FAULT_FAIL_CALL_H
#define FAULT_FAIL_CALL_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* X(name of the constant, of the function) */
#define FAIL_CALLS(X)                                                                              \
    X(OPEN, open)                                                                                  \
    X(MKDIR, mkdir)                                                                                \
    X(MKSTEMP, mkstemp)                                                                            \
    X(STAT, stat)                                                                                  \
    X(LSTAT, lstat)                                                                                \
    X(FSTAT, fstat)                                                                                \
    X(FCHMOD, fchmod)                                                                              \
    X(FLOCK, flock)                                                                                \
    X(READ, read)                                                                                  \
    X(PREAD, pread)                                                                                \
    X(WRITE, write)                                                                                \
    X(PWRITE, pwrite)                                                                              \
    X(FTRUNCATE, ftruncate)                                                                        \
    X(FSYNC, fsync)                                                                                \
    X(FDATASYNC, fdatasync)                                                                        \
    X(FOPEN, fopen)                                                                                \
    X(FWRITE, fwrite)                                                                              \
    X(FFLUSH, fflush)                                                                              \
    X(FCLOSE, fclose)                                                                              \
    X(MMAP, mmap)                                                                                  \
    X(RENAME, rename)                                                                              \
    X(UNLINK, unlink)

enum call {
#define X(constant, name) CALL_##constant,
    FAIL_CALLS(X)
#undef X
        CALL_KINDS,
    CALL_ANY = CALL_KINDS, /* all of them, counted together */
};

enum call_fault {
    FAIL_IO,          /* it did nothing: EIO */
    FAIL_NO_SPACE,    /* it did nothing: ENOSPC */
    FAIL_SHORT,       /* a read or a write of half the bytes */
    FAIL_INTERRUPTED, /* it did nothing: EINTR */
    FAIL_LATE,        /* it works, after a millisecond */
    FAIL_DEATH,       /* the process ends before it, with DEATH_CODE */
    CALL_FAULTS,
};

enum { DEATH_CODE = 99 };

struct fail_call {
    enum call call;
    enum call_fault how;
    uint64_t at;
    bool stays;
};

static struct {
    struct fail_call plan;
    bool is_armed, has_fired;
    uint64_t count;
} fail_call_state;

static inline const char *fail_call_name(enum call call) {
    static const char *const names[] = {
#define X(constant, name) #name,
        FAIL_CALLS(X)
#undef X
            "call"};
    return names[call];
}

static inline const char *fail_call_fault_name(enum call_fault how) {
    static const char *const names[] = {"fails",          "finds no space", "is short",
                                        "is interrupted", "is late",        "is the last"};
    return names[how];
}

static inline void fail_call_plan(const struct fail_call *plan) {
    fail_call_state.plan = *plan;
    fail_call_state.count = 0;
    fail_call_state.has_fired = false;
    fail_call_state.is_armed = true;
}

/* No more faults; true if one has happened. */
static inline bool fail_call_heal(void) {
    fail_call_state.is_armed = false;
    return fail_call_state.has_fired;
}

/* Is it this call's turn? The fault is in *how. */
static inline bool fail_call_hits(enum call call, enum call_fault *how) {
    const struct fail_call *plan = &fail_call_state.plan;
    if (!fail_call_state.is_armed || (plan->call != call && plan->call != CALL_ANY)) return false;
    const uint64_t number = fail_call_state.count++;
    if (number < plan->at || (number > plan->at && !plan->stays)) return false;
    fail_call_state.has_fired = true;
    *how = plan->how;
    if (plan->how == FAIL_DEATH) _exit(DEATH_CODE);
    if (plan->how == FAIL_LATE) usleep(1000);
    return true;
}

/* True: the call does nothing and fails, errno is set. */
static inline bool fail_call_refuses(enum call call) {
    enum call_fault how;
    if (!fail_call_hits(call, &how) || how == FAIL_LATE || how == FAIL_SHORT) return false;
    errno = how == FAIL_IO ? EIO : how == FAIL_NO_SPACE ? ENOSPC : EINTR;
    return true;
}

/* As fail_call_refuses, of a call that transfers *bytes, which may become fewer. */
static inline bool fail_call_cuts(enum call call, size_t *bytes) {
    enum call_fault how;
    if (!fail_call_hits(call, &how) || how == FAIL_LATE) return false;
    if (how == FAIL_SHORT) {
        if (*bytes > 1) *bytes /= 2;
        return false;
    }
    errno = how == FAIL_IO ? EIO : how == FAIL_NO_SPACE ? ENOSPC : EINTR;
    return true;
}

#define FAIL_CALL_WRAP(constant, type, name, failed, parameters, arguments)                        \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return fail_call_refuses(CALL_##constant) ? (failed) : __real_##name arguments;            \
    }

FAIL_CALL_WRAP(MKDIR, int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
FAIL_CALL_WRAP(MKSTEMP, int, mkstemp, -1, (char *path), (path))
FAIL_CALL_WRAP(STAT, int, stat, -1, (const char *path, struct stat *out), (path, out))
FAIL_CALL_WRAP(LSTAT, int, lstat, -1, (const char *path, struct stat *out), (path, out))
FAIL_CALL_WRAP(FSTAT, int, fstat, -1, (int fd, struct stat *out), (fd, out))
FAIL_CALL_WRAP(FCHMOD, int, fchmod, -1, (int fd, mode_t mode), (fd, mode))
FAIL_CALL_WRAP(FLOCK, int, flock, -1, (int fd, int how), (fd, how))
FAIL_CALL_WRAP(FTRUNCATE, int, ftruncate, -1, (int fd, off_t bytes), (fd, bytes))
FAIL_CALL_WRAP(FSYNC, int, fsync, -1, (int fd), (fd))
FAIL_CALL_WRAP(FDATASYNC, int, fdatasync, -1, (int fd), (fd))
FAIL_CALL_WRAP(FOPEN, FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
FAIL_CALL_WRAP(FFLUSH, int, fflush, EOF, (FILE * file), (file))
FAIL_CALL_WRAP(RENAME, int, rename, -1, (const char *from, const char *to), (from, to))
FAIL_CALL_WRAP(UNLINK, int, unlink, -1, (const char *path), (path))
FAIL_CALL_WRAP(MMAP, void *, mmap, MAP_FAILED,
               (void *at, size_t len, int prot, int flags, int fd, off_t offset),
               (at, len, prot, flags, fd, offset))

#define FAIL_CALL_WRAP_BYTES(constant, name, bytes, parameters, arguments)                         \
    ssize_t __real_##name parameters;                                                              \
    ssize_t __wrap_##name parameters;                                                              \
    ssize_t __wrap_##name parameters {                                                             \
        return fail_call_cuts(CALL_##constant, &bytes) ? -1 : __real_##name arguments;             \
    }

FAIL_CALL_WRAP_BYTES(READ, read, len, (int fd, void *out, size_t len), (fd, out, len))
FAIL_CALL_WRAP_BYTES(PREAD, pread, len, (int fd, void *out, size_t len, off_t offset),
                     (fd, out, len, offset))
FAIL_CALL_WRAP_BYTES(WRITE, write, len, (int fd, const void *from, size_t len), (fd, from, len))
FAIL_CALL_WRAP_BYTES(PWRITE, pwrite, len, (int fd, const void *from, size_t len, off_t offset),
                     (fd, from, len, offset))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return fail_call_refuses(CALL_OPEN) ? -1 : __real_open(path, flags, mode);
}

/* A short write of a stream is a failure: the disk is full. */
size_t __real_fwrite(const void *from, size_t size, size_t count, FILE *file);
size_t __wrap_fwrite(const void *from, size_t size, size_t count, FILE *file);
size_t __wrap_fwrite(const void *from, size_t size, size_t count, FILE *file) {
    size_t part = count;
    if (fail_call_cuts(CALL_FWRITE, &part)) return 0;
    size_t put = __real_fwrite(from, size, part, file);
    if (part < count) errno = ENOSPC;
    return put;
}

/* The descriptor is closed whatever it says. */
int __real_fclose(FILE *file);
int __wrap_fclose(FILE *file);
int __wrap_fclose(FILE *file) {
    const bool fails = fail_call_refuses(CALL_FCLOSE);
    const int error = errno, result = __real_fclose(file);
    if (fails) errno = error;
    return fails ? EOF : result;
}

#endif
