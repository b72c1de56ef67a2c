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

#define PANEL_KERNEL(name, body, ...)                                                              \
    PANEL_FUNCTION(name) {                                                                         \
        switch (count) {                                                                           \
        case 1:                                                                                    \
            body(w, panel, rows, 1, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 2:                                                                                    \
            body(w, panel, rows, 2, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        case 3:                                                                                    \
            body(w, panel, rows, 3, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        default:                                                                                   \
            body(w, panel, rows, 4, __VA_ARGS__, out);                                             \
            break;                                                                                 \
        }                                                                                          \
    }

/* An mm_pair_fn of that name and _pair: body(w, panel, rows, format, to). */
#define PAIR_KERNEL(name, body, ...)                                                               \
    static void name##_pair(const struct packed *w, const uint8_t *panel,                          \
                            const struct mm_row *rows, const struct mm_sink *to) {                 \
        body(w, panel, rows, __VA_ARGS__, to);                                                     \
    }

#endif
