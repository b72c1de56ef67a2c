/* cli/line_reader.c - see cli/line_reader.h. */
#define _GNU_SOURCE /* wcwidth, fopencookie */
#include "cli/line_reader.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/terminal_text.h"

enum { HISTORY_LINES = 1000, READ_BYTES = 4096, SCREEN_BYTES_MAX = 1 << 26 };

struct line_reader {
    struct interrupt *interrupt; /* borrowed */
    EditLine *edit;              /* NULL: plain lines */
    FILE *screen;                /* what libedit draws on; NULL: plain lines */
    struct buf drawn;            /* the end may be a part of a character */
    History *history;
    char *history_path; /* heap or NULL */
    const char *prompt; /* during line_reader_next */
    bool interrupted;
    uint32_t columns;    /* of the window when the line was last drawn; 0: not yet drawn */
    uint32_t have, used; /* bytes read ahead */
    char ahead[READ_BYTES];
};

enum { BYTE_END = -1, BYTE_INTERRUPT = -2 };

/* SIGWINCH only has to end poll(); the width is read after it. The signal may come just before
 * poll(), or to another thread, so the width is also read WINDOW_LOOK_MS later. */
enum { WINDOW_LOOK_MS = 250 };
static void on_window_change(int signal_number) { (void)signal_number; }

/* ---- drawing ---- */

/* In place of the C library's, for libedit: so that it counts the columns that `show` draws. */
int wcwidth(wchar_t c) { return terminal_text_has_column((uint32_t)c) ? 1 : wcswidth(&c, 1); }

static bool write_all(struct str bytes) {
    while (bytes.len > 0) {
        ssize_t put = write(STDOUT_FILENO, bytes.ptr, bytes.len);
        if (put < 0 && errno != EINTR) return false;
        bytes = str_skip(bytes, put > 0 ? (size_t)put : 0);
    }
    return true;
}

/* Write what is drawn up to the last whole character; the rest stays for the next call. */
static bool show(struct line_reader *r) {
    struct buf out;
    const struct str all = buf_str(&r->drawn);
    const size_t whole = utf8_complete_len(all);
    buf_init(&out, SCREEN_BYTES_MAX);
    terminal_text_put_unjoined(&out, str_take(all, whole));
    const bool ok = buf_status(&out) == ST_OK && write_all(buf_str(&out));
    buf_deinit(&out);
    memmove(r->drawn.ptr, all.ptr + whole, all.len - whole);
    r->drawn.len = all.len - whole;
    return ok;
}

static ssize_t draw(void *cookie, const char *bytes, size_t len) {
    struct line_reader *r = cookie;
    buf_put(&r->drawn, bytes, len);
    return buf_status(&r->drawn) == ST_OK && show(r) ? (ssize_t)len : -1;
}

/* In how many columns the prompt and the line up to the cursor are shown. */
static uint32_t width_to_cursor(const struct line_reader *r) {
    uint32_t width = (uint32_t)strlen(r->prompt);
    const LineInfoW *line = el_wline(r->edit);
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        int columns = wcwidth(*c);
        if (columns > 0) width += (uint32_t)columns;
    }
    return width;
}

/* Draw the line again when the window has another width. The terminal has wrapped what it shows at
 * the new width, so the prompt is as many rows above the cursor as the text has full rows. */
static void follow_window(struct line_reader *r) {
    struct winsize size;
    if (!r->edit || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return;
    uint32_t before = r->columns;
    r->columns = size.ws_col;
    if (before == 0 || before == r->columns) return;
    uint32_t rows = width_to_cursor(r) / r->columns;
    if (rows > 0) fprintf(r->screen, "\033[%uA", rows);
    fprintf(r->screen, "\r\033[J");
    fflush(r->screen);
    el_resize(r->edit);
    el_set(r->edit, EL_REFRESH);
}

/* Fill `ahead`: more than 0 when there are bytes, else BYTE_END or BYTE_INTERRUPT. */
static int read_ahead(struct line_reader *r) {
    for (;;) {
        follow_window(r);
        struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_fd(r->interrupt), POLLIN, 0}};
        if (poll(fds, 2, r->edit ? WINDOW_LOOK_MS : -1) < 0) {
            if (errno == EINTR) continue;
            return BYTE_END;
        }
        if (fds[1].revents && interrupt_take(r->interrupt)) return BYTE_INTERRUPT;
        if (!fds[0].revents) continue;
        ssize_t got = read(STDIN_FILENO, r->ahead, sizeof(r->ahead));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return BYTE_END;
        r->have = (uint32_t)got;
        r->used = 0;
        return 1;
    }
}

/* 0 .. 255, or BYTE_END or BYTE_INTERRUPT. */
static int next_byte(struct line_reader *r) {
    if (r->used == r->have) {
        int got = read_ahead(r);
        if (got < 0) return got;
    }
    return (unsigned char)r->ahead[r->used++];
}

/* libedit's callback for a character: 1: one was read, 0: end of input, -1: drop the line. */
static int read_wide(EditLine *edit, wchar_t *out) {
    struct line_reader *r;
    if (el_get(edit, EL_CLIENTDATA, &r) != 0) return -1;
    char bytes[4];
    size_t len = 0;
    uint32_t code = UTF8_CUT;
    while (code == UTF8_CUT && len < sizeof(bytes)) {
        int byte = next_byte(r);
        if (byte == BYTE_INTERRUPT) {
            r->interrupted = true;
            return -1;
        }
        if (byte == BYTE_END) return 0;
        bytes[len++] = (char)byte;
        utf8_decode((struct str){bytes, len}, &code);
    }
    *out = utf8_is_bad(code) ? 0xFFFD : (wchar_t)code;
    return 1;
}

static const char *give_prompt(EditLine *edit) {
    struct line_reader *r;
    return el_get(edit, EL_CLIENTDATA, &r) == 0 ? r->prompt : "";
}

/* libedit turns characters into bytes by the locale; ours are always UTF-8. */
static void use_utf8(void) {
    if (setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0) return;
    setlocale(LC_CTYPE, "C.UTF-8");
}

static bool start_editing(struct line_reader *r) {
    use_utf8();
    HistEvent event;
    fflush(stdout);
    r->screen = fopencookie(r, "w", (cookie_io_functions_t){.write = draw});
    if (!r->screen) return false;
    r->edit =
        el_init_fd("jitney", stdin, r->screen, stderr, STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO);
    r->history = history_init();
    if (!r->edit || !r->history) return false;
    sigaction(SIGWINCH, &(struct sigaction){.sa_handler = on_window_change}, NULL);
    el_set(r->edit, EL_CLIENTDATA, r);
    el_set(r->edit, EL_PROMPT, give_prompt);
    el_set(r->edit, EL_EDITOR, "emacs");
    el_set(r->edit, EL_GETCFN, read_wide);
    el_set(r->edit, EL_HIST, history, r->history);
    history(r->history, &event, H_SETSIZE, HISTORY_LINES);
    history(r->history, &event, H_SETUNIQUE, 1);
    if (r->history_path) history(r->history, &event, H_LOAD, r->history_path);
    return true;
}

enum status line_reader_open(bool edit, const char *history_path, struct interrupt *interrupt,
                             struct line_reader **out, struct err *err) {
    struct line_reader *r = mem_zalloc(sizeof(*r));
    if (!r) return err_set(err, ST_NOMEM, "out of memory");
    r->interrupt = interrupt;
    buf_init(&r->drawn, SCREEN_BYTES_MAX);
    if (history_path) r->history_path = mem_dup(history_path, strlen(history_path));
    if (edit && !start_editing(r)) {
        line_reader_close(r);
        return err_set(err, ST_NOMEM, "out of memory");
    }
    *out = r;
    return ST_OK;
}

void line_reader_close(struct line_reader *r) {
    if (!r) return;
    if (r->edit) {
        signal(SIGWINCH, SIG_DFL);
        el_end(r->edit);
    }
    if (r->screen) fclose(r->screen);
    buf_deinit(&r->drawn);
    if (r->history) {
        HistEvent event;
        /* A history that cannot be saved is not an error. */
        if (r->history_path) history(r->history, &event, H_SAVE, r->history_path);
        history_end(r->history);
    }
    mem_free(r->history_path);
    mem_free(r);
}

static enum line_result next_edited(struct line_reader *r, const char *prompt, bool keep,
                                    struct buf *out) {
    r->prompt = prompt;
    r->interrupted = false;
    r->columns = 0;
    el_resize(r->edit); /* the window may have changed during the answer */
    int count = 0;
    fflush(stdout); /* it comes before what libedit draws */
    /* el_gets would show the prompt first and set the terminal after it; a Ctrl-D in between
     * would be lost. */
    el_set(r->edit, EL_PREP_TERM, 1);
    const char *line = el_gets(r->edit, &count);
    if (r->interrupted) {
        el_reset(r->edit);
        return LINE_INTERRUPT;
    }
    if (!line || count <= 0) return LINE_END;
    struct str text = {line, (size_t)count};
    HistEvent event;
    if (keep && str_trim(text).len > 0) history(r->history, &event, H_ENTER, line);
    if (text.ptr[text.len - 1] == '\n') text.len--;
    buf_put_str(out, text);
    return buf_status(out) == ST_OK ? LINE_TEXT : LINE_TOO_LONG;
}

static enum line_result next_plain(struct line_reader *r, struct buf *out) {
    for (bool any = false;; any = true) {
        int byte = next_byte(r);
        if (byte == BYTE_INTERRUPT) return LINE_INTERRUPT;
        if (byte == BYTE_END && !any) return LINE_END;
        if (byte == BYTE_END || byte == '\n') break;
        buf_put_char(out, (char)byte);
    }
    return buf_status(out) == ST_OK ? LINE_TEXT : LINE_TOO_LONG;
}

enum line_result line_reader_next(struct line_reader *r, const char *prompt, struct buf *out) {
    buf_clear(out);
    return r->edit ? next_edited(r, prompt, true, out) : next_plain(r, out);
}

enum line_result line_reader_ask(struct line_reader *r, const char *question, struct buf *out) {
    buf_clear(out);
    r->have = r->used = 0;
    tcflush(STDIN_FILENO, TCIFLUSH);
    if (r->edit) return next_edited(r, question, false, out);
    fputs(question, stderr);
    fflush(stderr);
    return next_plain(r, out);
}
