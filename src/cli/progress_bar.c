/* cli/progress_bar.c - see cli/progress_bar.h for the contract. */
#define _DEFAULT_SOURCE
#include "cli/progress_bar.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size_text.h"
#include "config/env.h"

enum {
    BAR_PERIOD_US = 100 * 1000,
    LINE_PERIOD_US = 10 * 1000 * 1000,
    TENTH_PERIOD_US = 1000 * 1000,
    COLUMNS_DEFAULT = 80,
    COLUMNS_MAX = 200,
    BAR_CELLS_MAX = 40,
    BAR_CELLS_MIN = 8,
    TEXT_BYTES = 512,
    SHARE_STEPS = 1000,
};

static const char WIPE[] = "\r\033[K";

/* A terminal that is gone is not an error: the bar is an extra. */
static void show(const char *text, size_t len) {
    ssize_t put = write(STDERR_FILENO, text, len);
    (void)put;
}

static uint32_t terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return COLUMNS_DEFAULT;
    return size.ws_col > COLUMNS_MAX ? COLUMNS_MAX : size.ws_col;
}

void progress_bar_init(struct progress_bar *p, const struct env_settings *env,
                       enum progress_bar_elsewhere elsewhere) {
    bool terminal = isatty(STDERR_FILENO) == 1;
    *p = (struct progress_bar){
        .bar = terminal && !env->dumb_terminal,
        .lines = elsewhere == PROGRESS_BAR_LINES && (!terminal || env->dumb_terminal),
    };
}

void progress_bar_begin(struct progress_bar *p, const char *label, uint64_t total_bytes,
                        uint64_t done_bytes) {
    if (!(p->bar || p->lines)) return;
    snprintf(p->label, sizeof(p->label), "%s", label);
    p->share_only = false;
    p->text[0] = 0;
    p->total_bytes = total_bytes;
    p->first_bytes = p->done_bytes = done_bytes;
    p->began_us = p->shown_us = clock_now(&clock_real);
}

void progress_bar_begin_share(struct progress_bar *p, const char *label) {
    progress_bar_begin(p, label, SHARE_STEPS, 0);
    p->share_only = true;
}

static uint32_t percent_of(const struct progress_bar *p) {
    if (p->total_bytes == 0) return 0;
    double share = (double)p->done_bytes / (double)p->total_bytes;
    return share >= 1.0 ? 100 : (uint32_t)(share * 100.0);
}

/* Bytes, rate and time left: everything right of the bar. */
static void put_numbers(const struct progress_bar *p, int64_t now_us, char *out, size_t out_bytes) {
    char done[SIZE_TEXT_BYTES], total[SIZE_TEXT_BYTES], rate[SIZE_TEXT_BYTES];
    double elapsed_s = (double)(now_us - p->began_us) / 1e6;
    double moved = (double)(p->done_bytes - p->first_bytes);
    double per_s = elapsed_s > 0.2 ? moved / elapsed_s : 0.0;

    size_text(p->done_bytes, done);
    size_text(p->total_bytes, total);
    size_text((uint64_t)per_s, rate);
    int len = p->total_bytes ? snprintf(out, out_bytes, "%s of %s", done, total)
                             : snprintf(out, out_bytes, "%s", done);
    if (per_s < 1.0 || len < 0 || (size_t)len >= out_bytes) return;

    uint64_t left = p->total_bytes > p->done_bytes ? p->total_bytes - p->done_bytes : 0;
    unsigned left_s = (unsigned)((double)left / per_s + 0.5);
    char *rest = out + len;
    size_t rest_bytes = out_bytes - (size_t)len;
    if (!p->total_bytes || left_s > 359999)
        snprintf(rest, rest_bytes, "  %s/s", rate);
    else if (left_s >= 3600)
        snprintf(rest, rest_bytes, "  %s/s  %u h %02u min left", rate, left_s / 3600,
                 left_s / 60 % 60);
    else if (left_s >= 60)
        snprintf(rest, rest_bytes, "  %s/s  %u min %02u s left", rate, left_s / 60, left_s % 60);
    else
        snprintf(rest, rest_bytes, "  %s/s  %u s left", rate, left_s);
}

void progress_bar_render(const struct progress_bar *p, int64_t now_us, uint32_t columns, char *out,
                         uint32_t out_bytes) {
    char numbers[TEXT_BYTES / 2] = "";
    if (p->text[0])
        snprintf(numbers, sizeof(numbers), "%s", p->text);
    else if (!p->share_only)
        put_numbers(p, now_us, numbers, sizeof(numbers));
    size_t fixed = strlen(p->label) + strlen(numbers) + sizeof("  []  100%    ");
    size_t room = columns > fixed ? columns - fixed : 0;
    if (room > BAR_CELLS_MAX) room = BAR_CELLS_MAX;

    char cells[BAR_CELLS_MAX + 1];
    size_t full = room * percent_of(p) / 100;
    for (size_t i = 0; i < room; i++) cells[i] = i < full ? '#' : '-';
    cells[room] = 0;

    const char *gap = numbers[0] ? "  " : "";
    if (p->total_bytes && room >= BAR_CELLS_MIN)
        snprintf(out, out_bytes, "%s  [%s]  %3u%%%s%s", p->label, cells, percent_of(p), gap,
                 numbers);
    else if (p->total_bytes)
        snprintf(out, out_bytes, "%s  %u%%%s%s", p->label, percent_of(p), gap, numbers);
    else
        snprintf(out, out_bytes, "%s%s%s", p->label, gap, numbers);
    /* One column stays free: a full line makes some terminals wrap. */
    if (columns > 0 && columns <= out_bytes) out[columns - 1] = 0;
}

static void show_bar(struct progress_bar *p, int64_t now_us) {
    char line[TEXT_BYTES], text[TEXT_BYTES + sizeof(WIPE)];
    progress_bar_render(p, now_us, terminal_columns(), line, sizeof(line));
    int len = snprintf(text, sizeof(text), "%s%s", WIPE, line);
    if (len > 0) show(text, (size_t)len);
    p->drawn = true;
}

static void show_line(const struct progress_bar *p, int64_t now_us) {
    char line[TEXT_BYTES], text[TEXT_BYTES + 2];
    progress_bar_render(p, now_us, 0, line, sizeof(line));
    int len = snprintf(text, sizeof(text), "%s\n", line);
    if (len > 0) show(text, (size_t)len);
}

static bool is_due(const struct progress_bar *p, int64_t now_us) {
    int64_t since_us = now_us - p->shown_us;
    if (p->bar) return since_us >= BAR_PERIOD_US;
    bool is_tenth = p->text[0] && percent_of(p) / 10 > p->shown_tenth;
    return since_us >= (is_tenth ? TENTH_PERIOD_US : LINE_PERIOD_US);
}

void progress_bar_update(struct progress_bar *p, uint64_t done_bytes) {
    if (!(p->bar || p->lines)) return;
    p->done_bytes = done_bytes;
    /* Starting over makes the work done shrink below where it began. */
    if (done_bytes < p->first_bytes) p->first_bytes = done_bytes;
    int64_t now_us = clock_now(&clock_real);
    if (!is_due(p, now_us)) return;
    p->shown_us = now_us;
    p->shown_tenth = percent_of(p) / 10;
    if (p->bar)
        show_bar(p, now_us);
    else
        show_line(p, now_us);
}

void progress_bar_update_text(struct progress_bar *p, uint64_t done, const char *text) {
    if (!(p->bar || p->lines)) return;
    snprintf(p->text, sizeof(p->text), "%s", text);
    progress_bar_update(p, done);
}

void progress_bar_on_load(void *ctx, const char *stage, double share) {
    (void)stage;
    double bounded = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
    progress_bar_update(ctx, (uint64_t)(bounded * SHARE_STEPS));
}

void progress_bar_on_transfer(void *ctx, const char *label, uint64_t done_bytes,
                              uint64_t total_bytes) {
    struct progress_bar *p = ctx;
    if (!label) {
        progress_bar_end(p);
        p->label[0] = 0;
        return;
    }
    if (strcmp(label, p->label) != 0) progress_bar_begin(p, label, total_bytes, done_bytes);
    p->total_bytes = total_bytes;
    progress_bar_update(p, done_bytes);
}

void progress_bar_end(struct progress_bar *p) {
    if (!p->drawn) return;
    show(WIPE, sizeof(WIPE) - 1);
    p->drawn = false;
}
