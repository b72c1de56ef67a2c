/* kernels/cpu/panel_kernel.h - panel kernels out of bodies that are compiled for each number of
 * rows.
 *
 * PANEL_KERNEL_4(name, body, format) defines `name`, an mm_panel_fn for up to 4 rows: a switch on
 * their number around body(w, panel, rows, count, format, out), which is always inlined and sees
 * both `count` and `format` as constants. PANEL_KERNEL_8 takes up to 8. A kernel that only its own
 * file names is declared static before.
 */
#ifndef KERNELS_CPU_PANEL_KERNEL_H
#define KERNELS_CPU_PANEL_KERNEL_H

#include "kernels/cpu/cpu_int.h"

#define PANEL_FUNCTION(name)                                                                       \
    void name(const struct packed *w, const uint8_t *panel, const struct mm_row *rows,             \
              uint32_t count, float out[MM_TILE][PANEL_ROWS])

#define PANEL_ROWS_ARE(number, body, ...)                                                          \
    body(w, panel, rows, number, __VA_ARGS__, out);                                                \
    break

#define PANEL_KERNEL_4(name, body, ...)                                                            \
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

#define PANEL_KERNEL_8(name, body, ...)                                                            \
    PANEL_FUNCTION(name) {                                                                         \
        switch (count) {                                                                           \
        case 1:                                                                                    \
            PANEL_ROWS_ARE(1, body, __VA_ARGS__);                                                  \
        case 2:                                                                                    \
            PANEL_ROWS_ARE(2, body, __VA_ARGS__);                                                  \
        case 3:                                                                                    \
            PANEL_ROWS_ARE(3, body, __VA_ARGS__);                                                  \
        case 4:                                                                                    \
            PANEL_ROWS_ARE(4, body, __VA_ARGS__);                                                  \
        case 5:                                                                                    \
            PANEL_ROWS_ARE(5, body, __VA_ARGS__);                                                  \
        case 6:                                                                                    \
            PANEL_ROWS_ARE(6, body, __VA_ARGS__);                                                  \
        case 7:                                                                                    \
            PANEL_ROWS_ARE(7, body, __VA_ARGS__);                                                  \
        default:                                                                                   \
            PANEL_ROWS_ARE(8, body, __VA_ARGS__);                                                  \
        }                                                                                          \
    }

#endif
