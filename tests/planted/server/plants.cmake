# Bugs that unit/server/test_serving_speculation.c must find. See sim/planted/plant.cmake for the
# form.

plant("usage counts drafts" server/generation_deliver.c
[==[        gen->answer.choices[i].answer_tokens = mine->taken;]==]
[==[        gen->answer.choices[i].answer_tokens = mine->taken + (PLANT ? c->drafted : 0);]==])

plant("an answer goes on behind a stop string, inside accepted drafts" server/generation_deliver.c
[==[at < end && !met; at++) {]==]
[==[at < end && (PLANT || !met); at++) {]==])

plant("accepted drafts behind a stop string count as part of the answer"
  server/generation_deliver.c
[==[    for (uint32_t i = from; i < a->answer_tokens; i++)]==]
[==[    for (uint32_t i = from;
         i < (PLANT ? c->ready - c->prompt_tokens : a->answer_tokens); i++)]==])

plant("every draft counts as rejected" server/generation_deliver.c
[==[memory_order_relaxed) - a->predicted_tokens;]==]
[==[memory_order_relaxed) - (PLANT ? 0 : a->predicted_tokens);]==])

plant("the token sampled behind drafts counts as predicted" engine/engine.c
[==[for (uint32_t i = first; i < first + row->accepted; i++)]==]
[==[for (uint32_t i = first; i < first + row->accepted + PLANT; i++)]==])

plant("a key pays for drafts" server/generation_report.c
[==[keys_end(s->keys, gen->key, gen->reserved, (uint64_t)tokens + a->prompt_tokens,]==]
[==[keys_end(s->keys, gen->key, gen->reserved,
                 (uint64_t)tokens + a->prompt_tokens +
                     (PLANT ? answer_predicted_tokens(a) + answer_rejected_tokens(a) : 0),]==])

plant("a request with a prediction cannot switch drafts off" server/generation_submit.c
[==[    if (q->has_max && q->max == 0) {]==]
[==[    if (!PLANT && q->has_max && q->max == 0) {]==])
