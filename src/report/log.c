/* report/log.c - see report/log.h.
 *
 * A line is written with one call that never blocks. A pipe or a terminal is opened a second time
 * for that, because O_NONBLOCK belongs to the open file and would change it for the shell as well;
 * a socket is written with MSG_DONTWAIT; a regular file never blocks. The rest of a line that was
 * written in part is written first the next time; while it waits, further lines are dropped.
 */
#include "report/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

enum { LINE_BYTES_MAX = 1 << 20, PATH_BYTES = 64, FLUSH_AT_END_MS = 500 };

enum log_format { FORMAT_LOGFMT, FORMAT_JSON };

struct log {
    pthread_mutex_t lock;
    int fd;
    bool owns_fd, is_socket;
    _Atomic int level; /* relaxed: one line more or less while it changes is harmless */
    enum log_format format;
    struct buf line;    /* being made */
    struct buf pending; /* the rest of a line that was partly written */
    size_t pending_sent;
    uint64_t lost, lost_reported;
};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static bool find_level(const char *name, int *out) {
    for (int i = 0; i <= LOG_DEBUG; i++) {
        if (strcmp(name, level_names[i]) != 0) continue;
        *out = i;
        return true;
    }
    return false;
}

enum status log_set(struct log *log, const char *format, const char *level, struct err *err) {
    int number;
    if (!find_level(level, &number))
        return err_set(err, ST_BAD, "log-level is \"%s\"; it must be error, warn, info or debug",
                       level);
    bool is_json = strcmp(format, "json") == 0;
    if (!is_json && strcmp(format, "logfmt") != 0)
        return err_set(err, ST_BAD, "log-format is \"%s\"; it must be logfmt or json", format);
    pthread_mutex_lock(&log->lock);
    log->format = is_json ? FORMAT_JSON : FORMAT_LOGFMT;
    pthread_mutex_unlock(&log->lock);
    atomic_store_explicit(&log->level, number, memory_order_relaxed);
    return ST_OK;
}

/* Find a way to write to `fd` that does not block. */
static void choose_fd(struct log *log, int fd) {
    struct stat info;
    log->fd = fd;
    if (fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) return;
    log->is_socket = S_ISSOCK(info.st_mode);
    if (log->is_socket) return;
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (own < 0) return; /* put_bytes then polls before it writes */
    log->fd = own;
    log->owns_fd = true;
}

enum status log_create(int fd, const char *format, const char *level, struct log **out,
                       struct err *err) {
    struct log *log = mem_zalloc(sizeof(*log));
    if (!log) return err_set(err, ST_NOMEM, "out of memory");
    pthread_mutex_init(&log->lock, NULL);
    buf_init(&log->line, LINE_BYTES_MAX);
    buf_init(&log->pending, LINE_BYTES_MAX);
    choose_fd(log, fd);
    enum status st = log_set(log, format, level, err);
    if (st == ST_OK)
        *out = log;
    else
        log_destroy(log);
    return st;
}

bool log_wants(const struct log *log, enum log_level level) {
    return (int)level <= atomic_load_explicit(&log->level, memory_order_relaxed);
}

/* --- a line ------------------------------------------------------------------------------ */

static void put_time(struct buf *out) {
    int64_t now_us = clock_wall_us();
    time_t seconds = (time_t)(now_us / 1000000);
    struct tm t;
    gmtime_r(&seconds, &t);
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900, t.tm_mon + 1,
               t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, (int)(now_us / 1000 % 1000));
}

/* Can it be written after "name=" without quotes? */
static bool is_word(struct str s) {
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= ' ' || c >= 0x7F || c == '"' || c == '=' || c == '\\') return false;
    }
    return s.len > 0;
}

static void put_value(struct buf *out, enum log_format format, const struct log_field *f) {
    switch (f->kind) {
    case LOG_INT:
        if (f->integer < 0) buf_put_char(out, '-');
        buf_put_uint(out, f->integer < 0 ? -(uint64_t)f->integer : (uint64_t)f->integer);
        return;
    case LOG_REAL:
        if (isfinite(f->real))
            buf_printf(out, "%.6g", f->real);
        else
            buf_put_text(out, "null");
        return;
    case LOG_TEXT:
        if (format == FORMAT_LOGFMT && is_word(f->text))
            buf_put_str(out, f->text);
        else
            buf_put_json_string(out, f->text);
        return;
    }
}

static void put_line(struct buf *out, enum log_format format, enum log_level level,
                     const char *event, const struct log_field *fields, uint32_t count) {
    bool json = format == FORMAT_JSON;
    buf_put_text(out, json ? "{\"ts\":\"" : "ts=");
    put_time(out);
    buf_put_text(out, json ? "\",\"level\":\"" : " level=");
    buf_put_text(out, level_names[level]);
    buf_put_text(out, json ? "\",\"event\":\"" : " event=");
    buf_put_text(out, event);
    if (json) buf_put_char(out, '"');
    for (uint32_t i = 0; i < count; i++) {
        buf_put_text(out, json ? ",\"" : " ");
        buf_put_text(out, fields[i].name);
        buf_put_text(out, json ? "\":" : "=");
        put_value(out, format, &fields[i]);
    }
    buf_put_text(out, json ? "}\n" : "\n");
}

/* --- writing ---------------------------------------------------------------------- */

/* Returns how many bytes were written without blocking. If the reader has closed, all count. */
static size_t put_bytes(struct log *log, const char *ptr, size_t len) {
    bool may_wait = !log->is_socket && !log->owns_fd;
    struct pollfd ready = {.fd = log->fd, .events = POLLOUT};
    if (may_wait && poll(&ready, 1, 0) != 1) return 0;
    ssize_t sent;
    do {
        sent = log->is_socket ? send(log->fd, ptr, len, MSG_DONTWAIT | MSG_NOSIGNAL)
                              : write(log->fd, ptr, len);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return (size_t)sent;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : len;
}

/* true: no rest of an earlier line is left. */
static bool flush_pending(struct log *log) {
    size_t left = log->pending.len - log->pending_sent;
    if (left == 0) return true;
    log->pending_sent += put_bytes(log, log->pending.ptr + log->pending_sent, left);
    if (log->pending_sent < log->pending.len) return false;
    buf_clear(&log->pending);
    log->pending_sent = 0;
    return true;
}

/* Write log->line; keep the rest if it was written in part; drop it if it was not. */
static void write_line(struct log *log) {
    if (buf_status(&log->line) != ST_OK) {
        log->lost++;
        return;
    }
    size_t sent = put_bytes(log, log->line.ptr, log->line.len);
    if (sent == 0) log->lost++;
    if (sent == 0 || sent == log->line.len) return;
    buf_put(&log->pending, log->line.ptr + sent, log->line.len - sent);
}

static void tell_lost(struct log *log) {
    uint64_t lost = log->lost;
    if (lost == log->lost_reported) return;
    struct log_field field = log_int("lines", (int64_t)(lost - log->lost_reported));
    buf_clear(&log->line);
    put_line(&log->line, log->format, LOG_WARN, "log_lost", &field, 1);
    if (buf_status(&log->line) != ST_OK) return;
    size_t sent = put_bytes(log, log->line.ptr, log->line.len);
    if (sent == 0) return;
    log->lost_reported = lost;
    if (sent < log->line.len) buf_put(&log->pending, log->line.ptr + sent, log->line.len - sent);
}

void log_line(struct log *log, enum log_level level, const char *event,
              const struct log_field *fields, uint32_t count) {
    if (!log_wants(log, level)) return;
    pthread_mutex_lock(&log->lock);
    if (flush_pending(log)) tell_lost(log);
    if (log->pending.len > 0) {
        log->lost++;
    } else {
        buf_clear(&log->line);
        put_line(&log->line, log->format, level, event, fields, count);
        write_line(log);
    }
    pthread_mutex_unlock(&log->lock);
}

uint64_t log_lost(const struct log *log) {
    struct log *own = (struct log *)log; /* only the lock changes */
    pthread_mutex_lock(&own->lock);
    uint64_t lost = own->lost;
    pthread_mutex_unlock(&own->lock);
    return lost;
}

void log_destroy(struct log *log) {
    if (!log) return;
    struct pollfd ready = {.fd = log->fd, .events = POLLOUT};
    if (!flush_pending(log) && poll(&ready, 1, FLUSH_AT_END_MS) == 1) flush_pending(log);
    if (log->owns_fd) close(log->fd);
    buf_deinit(&log->line);
    buf_deinit(&log->pending);
    pthread_mutex_destroy(&log->lock);
    mem_free(log);
}
