/* report/log.h - the log: lines for people and programs, on standard error.
 *
 *     log_line(log, LOG_INFO, "request", (struct log_field[]){{"id", id}, ...}, 3);
 *     ts=2026-01-02T03:04:05.678Z level=info event=request id=... status=200 ...
 *
 * logfmt or JSON; values are escaped, so that an event is always one line. Text of prompts and
 * answers is written with --log-prompts only. If the reader of the log is slow, lines are dropped
 * and counted; the server never waits for it.
 *
 * Lifetime: create, destroy. Thread: any.
 */
#ifndef REPORT_LOG_H
#define REPORT_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct log; /* opaque */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

enum log_kind { LOG_TEXT, LOG_INT, LOG_REAL };
struct log_field {
    const char *name;
    enum log_kind kind;
    struct str text;
    int64_t integer;
    double real;
};
static inline struct log_field log_text(const char *name, struct str v) {
    return (struct log_field){.name = name, .kind = LOG_TEXT, .text = v};
}
static inline struct log_field log_int(const char *name, int64_t v) {
    return (struct log_field){.name = name, .kind = LOG_INT, .integer = v};
}
static inline struct log_field log_real(const char *name, double v) {
    return (struct log_field){.name = name, .kind = LOG_REAL, .real = v};
}

enum status log_create(int fd, const char *format, const char *level, struct log **out,
                       struct err *err);
void log_destroy(struct log *log); /* NULL is fine */
enum status log_set(struct log *log, const char *format, const char *level, struct err *err);
bool log_wants(const struct log *log, enum log_level level);

void log_line(struct log *log, enum log_level level, const char *event,
              const struct log_field *fields, uint32_t count);

uint64_t log_lost(const struct log *log); /* lines that were dropped */

#endif
