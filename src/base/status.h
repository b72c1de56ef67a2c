/* base/status.h - the result codes every module shares, and the sentence that goes with one.
 *
 * A function that can fail returns `enum status`. Where a person will read the reason it also
 * takes a `struct err *` and fills it with one sentence that says what happened, where, and
 * what was expected; no newline, no full stop needed. A function that returns an error does not log
 * it.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

enum status {
    ST_OK = 0,
    ST_FULL,        /* a fixed-size resource is used up; the caller may wait and retry   */
    ST_NOMEM,       /* the allocator said no                                             */
    ST_BAD,         /* the input breaks the contract of a file format or a protocol      */
    ST_MISSING,     /* a file, model or name that was asked for does not exist           */
    ST_CREATE,      /* an output file or folder cannot be created                        */
    ST_IO,          /* the operating system failed while reading or writing              */
    ST_UNAVAILABLE, /* a service or tool outside this program cannot be reached          */
    ST_DEVICE,      /* the accelerator failed; its context is lost                       */
    ST_CANCELLED,   /* the work was cancelled                                            */
};

enum { ERR_TEXT_BYTES = 512 };

/* One sentence for a human. Zero-initialise it; text[0] == 0 means nothing was said. */
struct err {
    char text[ERR_TEXT_BYTES];
};

const char *status_name(enum status st);

/* Write the sentence (cut at the end if too long, never inside a UTF-8 character; control
 * characters become '?') and return `st`, so that a failure is one line:
 *     return err_set(err, ST_BAD, "%s: tensor %s: ...", path, name);
 * `err` may be NULL. */
enum status err_set(struct err *err, enum status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "prefix: " in front of what is already said. Returns `st`. */
enum status err_prefix(struct err *err, enum status st, const char *prefix);

/* Pass a failure on. Not for functions that have something to undo. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (expr);                                                          \
        if (try_status_ != ST_OK) return try_status_;                                              \
    } while (0)

#endif
