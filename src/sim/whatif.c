/* sim/whatif.c - see sim/whatif.h for the contract. */
#include "sim/whatif.h"

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/record_json.h"
#include "sched/policy.h"
#include "sim/replay.h"
#include "sim/replay_list.h"

/* Measured on x86-64 and rounded up: what an engine takes for each of them. A place is one that the
 * engine has room for; a choice, one of the list. */
enum {
    BYTES_OF_ENGINE = 1 << 20,
    BYTES_PER_BLOCK = 160,
    BYTES_PER_PLACE = 512,
    BYTES_PER_CHOICE = 4096,
};

static enum status run(const struct request_list *list, const struct whatif_options *o,
                       struct engine *e, struct sim_clock *clock, struct buf *out,
                       struct err *err) {
    struct replay replay;
    TRY(replay_init(&replay, list, err));
    replay.drops_answers = true;
    replay.goes_on = o->goes_on;
    replay.goes_ctx = o->ctx;
    enum status st = replay_run_sim(&replay, e, clock, err);
    if (st == ST_OK) {
        const struct engine_stats stats = engine_stats(e);
        const struct replay_summary summary = replay_summarize(&replay, &stats);
        buf_put_text(out, "{\"policy\":");
        buf_put_json_string(out, str_of(o->policy->name));
        buf_put_text(out, ",\"figures\":");
        replay_put_summary(&summary, out);
        buf_put_text(out, ",\"steps\":[");
        st = record_put_steps(engine_records(e), WHATIF_STEPS_KEPT, out);
        buf_put_text(out, "]}");
    }
    replay_deinit(&replay);
    return st;
}

enum status whatif_run(const struct request_list *list, const struct whatif_options *o,
                       struct buf *out, struct err *err) {
    struct replay_sim_options sim = {.policy = o->policy,
                                     .knobs = o->knobs,
                                     .ctx_tokens = o->ctx_tokens,
                                     .vocab = SIM_VOCAB,
                                     .record_bytes = o->record_bytes,
                                     .profile = o->profile};
    struct sim_clock clock;
    struct engine *e = NULL;
    replay_widen_queue(list, &sim.knobs);
    TRY(replay_open_sim(&sim, &clock, &e, err));
    enum status st = run(list, o, e, &clock, out, err);
    engine_destroy(e);
    return st == ST_OK ? buf_status(out) : st;
}

uint64_t whatif_bytes(const struct request_list *list, const struct whatif_options *o) {
    const uint32_t ctx = o->ctx_tokens ? o->ctx_tokens : SIM_CTX_TOKENS;
    struct knobs knobs = o->knobs;
    replay_widen_queue(list, &knobs);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct listed_request *r = &list->items[i];
        uint64_t most = (uint64_t)r->prompt_tokens + r->max_tokens;
        tokens += r->prompt_tokens + r->n * (most < ctx ? most : ctx);
    }
    return BYTES_OF_ENGINE + o->record_bytes + tokens * sizeof(int32_t) +
           (uint64_t)(knobs.kv_blocks ? knobs.kv_blocks : SIM_KV_BLOCKS) * BYTES_PER_BLOCK +
           (uint64_t)sched_seq_max(&knobs) * BYTES_PER_PLACE +
           (uint64_t)request_list_choices(list) * BYTES_PER_CHOICE;
}
