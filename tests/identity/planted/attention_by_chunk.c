/* Rule broken: sums are cut at fixed absolute places. Here attention cuts its sum in the middle
 * when a step has many rows.
 * wrap: cpu_program_submit avx512_attend avx2_attend neon_attend portable_attend */
#include "kernels/cpu/kernels_avx2.h"
#include "kernels/cpu/kernels_avx512.h"
#include "kernels/cpu/kernels_neon.h"
#include "kernels/cpu/kernels_portable.h"
#include "kernels/cpu/program.h"

enum { MANY_ROWS = 8, HEAD_DIM_MAX = 256 };

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
void __real_avx512_attend(const struct attn_segment *s, struct attn_part *out);
void __wrap_avx512_attend(const struct attn_segment *s, struct attn_part *out);
void __real_avx2_attend(const struct attn_segment *s, struct attn_part *out);
void __wrap_avx2_attend(const struct attn_segment *s, struct attn_part *out);
void __real_neon_attend(const struct attn_segment *s, struct attn_part *out);
void __wrap_neon_attend(const struct attn_segment *s, struct attn_part *out);
void __real_portable_attend(const struct attn_segment *s, struct attn_part *out);
void __wrap_portable_attend(const struct attn_segment *s, struct attn_part *out);

static uint32_t rows; /* of the step under way */

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    rows = step->row_count;
    return __real_cpu_program_submit(self, p, step, err);
}

typedef void attend_fn(const struct attn_segment *s, struct attn_part *out);
typedef void join_fn(struct attn_part *into, const struct attn_part *part, uint32_t head_dim);

static void attend_in_halves(attend_fn *attend, join_fn *join, const struct attn_segment *s,
                             struct attn_part *out) {
    _Alignas(64) float values[ATTN_QUERIES][HEAD_DIM_MAX];
    struct attn_segment first = *s, second = *s;
    struct attn_part part[ATTN_QUERIES];
    bool whole = rows < MANY_ROWS;
    for (uint32_t i = 0; i < s->query_count; i++) {
        const struct attn_query *q = &s->query[i];
        uint32_t middle = q->first + (q->end - q->first) / 2;
        whole = whole || middle == q->first;
        first.query[i].end = second.query[i].first = middle;
        part[i].out = values[i];
    }
    if (whole) {
        attend(s, out);
        return;
    }
    attend(&first, out);
    attend(&second, part);
    for (uint32_t i = 0; i < s->query_count; i++) join(&out[i], &part[i], s->head_dim);
}

#if defined(__x86_64__)
void __wrap_avx512_attend(const struct attn_segment *s, struct attn_part *out) {
    attend_in_halves(__real_avx512_attend, avx2_attn_merge, s, out);
}

void __wrap_avx2_attend(const struct attn_segment *s, struct attn_part *out) {
    attend_in_halves(__real_avx2_attend, avx2_attn_merge, s, out);
}
#elif defined(__aarch64__)
void __wrap_neon_attend(const struct attn_segment *s, struct attn_part *out) {
    attend_in_halves(__real_neon_attend, portable_attn_merge, s, out);
}
#endif

void __wrap_portable_attend(const struct attn_segment *s, struct attn_part *out) {
    attend_in_halves(__real_portable_attend, portable_attn_merge, s, out);
}
