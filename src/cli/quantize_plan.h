/* cli/quantize_plan.h - `jitney quantize --budget` and `--bits`: a type for each matrix.
 *
 * The KL of the output is measured with one matrix quantised at a time (cli/sensitivity_run.h). For
 * small errors KL grows with the square of the error, so what another type would cost is that KL
 * times the ratio of the squared errors (quant/type_error.h), and the costs of matrices add up. The
 * types are then the cheapest ones within the budget (quant/plan.h).
 *
 *     read_target -> check -> create -> types, put_table, put_json -> destroy
 *
 * Lifetime: create, destroy; the converter, whose tensors it lists, outlives it.
 * Thread: the main thread.
 */
#ifndef CLI_QUANTIZE_PLAN_H
#define CLI_QUANTIZE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/cli.h"
#include "tensor/dtype.h"

struct buf;
struct calibration;
struct convert;
struct quantize_plan; /* opaque */

extern const struct flag flags_plan[]; /* --budget --bits --plan */

/* What is wanted of the file. */
struct quantize_target {
    bool is_set;      /* false: neither --budget nor --bits */
    bool by_bits;     /* bits a weight of all tensors; else bytes of the file */
    bool writes_none; /* --plan */
    uint64_t bytes;
    double bits;
};
enum exit_code quantize_target_read(const struct args *args, struct quantize_target *out,
                                    struct err *err);

/* Can any choice of types meet the target? ST_BAD: none does; the message says what would.
 * `c`: with the types that some --type gives. *file_bytes: that the file will
 * have at most; it will have about as many, unless other types gain nothing. */
enum status quantize_plan_check(struct convert *c, const struct quantize_target *target,
                                uint64_t *file_bytes, struct err *err);

/* Of a target that can be met. Runs the model (args, as for calibrate_model): takes minutes. */
enum status quantize_plan_create(const struct args *args, struct convert *c,
                                 const struct calibration *calibration,
                                 const struct quantize_target *target, struct quantize_plan **out,
                                 struct err *err);
void quantize_plan_destroy(struct quantize_plan *p); /* NULL is fine */

/* The type of every tensor of the converter, and the one that most weights have. */
const enum dtype *quantize_plan_types(const struct quantize_plan *p);
enum dtype quantize_plan_main_type(const struct quantize_plan *p);

/* The choice in short, or with `all` also for each tensor, and the curve: size against KL. */
void quantize_plan_put_table(const struct quantize_plan *p, bool all, struct buf *out);
void quantize_plan_put_json(const struct quantize_plan *p, struct buf *out); /* an object */

#endif
