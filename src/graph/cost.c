/* graph/cost.c - what each op costs, for the cost model, for people and for share-of-ceiling
 * figures. Scratch memory is taken to stay in cache; weights and KV are what moves.
 */
#include "base/check.h"
#include "graph/graph_int.h"
#include "graph/op_info.h"

static uint64_t rows_of(const struct tape *t, const struct op_access *a, uint32_t rows) {
    if (a->write_count == 0) return rows;
    return t->values[a->writes[0]->value].rows == ROWS_TOKENS ? rows : 1;
}

struct op_cost tape_op_cost(const struct tape *t, uint32_t i, uint32_t rows, uint32_t ctx) {
    CHECK(i < t->op_count);
    struct op copy = t->ops[i];
    struct op_access a = op_access(&copy);
    const struct op_info *info = op_info(copy.kind);
    uint64_t n = rows_of(t, &a, rows);
    if (info->cost) return info->cost(&t->ops[i], n, ctx);
    return (struct op_cost){.flops = 4 * n * (a.read_count ? a.reads[0]->cols : 0), .bytes = 0};
}
