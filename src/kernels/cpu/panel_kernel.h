/* kernels/cpu/panel_kernel.h - panel kernels out of bodies that are compiled for each number of
 * rows.
 *
 * PANEL_KERNEL(name, body, format) defines `name`, an mm_panel_fn: a switch on the number of rows
 * around body(w, panel, rows, count, format, out), which is always inlined and sees both `count`
 * and `format` as constants. A kernel that only its own file names is declared static before.
 */
#ifndef KERNELS_CPU_PANEL_KERNEL_H
#define KERNELS_CPU_PANEL_KERNEL_H

#include "kernels/cpu/mm.h"

#define PANEL_FUNCTION(name)                                                                       \
    void name(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,             \
              uint32_t count, float out[MM_TILE][PANEL_ROWS])

#define PANEL_ROWS_ARE(number, body, ...)                                                          \
    body(w, panel, rows, number, __VA_ARGS__, out);                                                \
    break

#define PANEL_KERNEL(name, body, ...)                                                              \
    PANEL_FUNCTION(name) {                                                                         \
        switch (count) {                                                                           \
        case 1:                                                                                    \
            PANEL_ROWS_ARE(1, body, __VA_ARGS__);                                                  \
        case 2:                                                                                    \
            PANEL_ROWS_ARE(2, body, __VA_ARGS__);                                                  \
        case 3:                                                                                    \
            PANEL_ROWS_ARE(3, body, __VA_ARGS__);                                                  \
        default:                                                                                   \
            PANEL_ROWS_ARE(4, body, __VA_ARGS__);                                                  \
        }                                                                                          \
    }

/* An mm_pair_fn of that name and _pair: body(w, panel, rows, format, to). */
#define PAIR_KERNEL(name, body, ...)                                                               \
    static void name##_pair(const struct packed *w, const uint8_t *panel,                          \
                            const struct mm_row *rows, const struct mm_sink *to) {                 \
        body(w, panel, rows, __VA_ARGS__, to);                                                     \
    }

#endif
