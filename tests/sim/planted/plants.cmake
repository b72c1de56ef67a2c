# Bugs that the simulator must find, by what they do. See plant.cmake for the form.

# ---- KV cache: who holds which block ----

plant("a block is leaked when a sequence ends" kv/cache.c
[==[kv_release(c, s, g, seq->first[g], kv_blocks_for(c, seq->room));]==]
[==[kv_release(c, s, g, seq->first[g] + (PLANT && kv_blocks_for(c, seq->room) > seq->first[g]),
                   kv_blocks_for(c, seq->room));]==])

plant("a shared block is given back twice" kv/cache.c
[==[kv_pool_unpin(c->groups[group].pool, table[i - 1]);]==]
[==[kv_pool_unpin(c->groups[group].pool, table[i - 1]);
        if (PLANT && kv_pool_refs(c->groups[group].pool, table[i - 1]) > 0)
            kv_pool_unpin(c->groups[group].pool, table[i - 1]);]==])

plant("a held block is evicted" kv/pool.c
[==[if (--s->refs > 0) return;]==]
[==[if (--s->refs > (PLANT && s->keyed)) return;]==])

plant("an evicted block stays in the index" kv/cache.c
[==[if (g->index) kv_prefix_remove(g->index, g->info[block].key);]==]
[==[if (g->index && !PLANT) kv_prefix_remove(g->index, g->info[block].key);]==])

plant("the end of a sequence does not withdraw its promises" kv/cache.c
[==[    kv_promise_withdraw(c, s);
    for (uint32_t g = 0;]==]
[==[    if (!PLANT) kv_promise_withdraw(c, s);
    for (uint32_t g = 0;]==])

plant("spill slots are lost when a swapped-out sequence ends" kv/cache.c
[==[free_spill_slots(c, s, g);]==]
[==[if (!PLANT) free_spill_slots(c, s, g);]==])

plant("a new block goes into another group's table" kv/grow.c
[==[take_blocks(c, s, g, want - have, kv_table(c, s, g) + have);]==]
[==[take_blocks(c, s, g, want - have, kv_table(c, s, PLANT ? 0 : g) + have);]==])

plant("two entries of a table are exchanged" kv/grow.c
[==[    if (tokens > seq->room) seq->room = tokens;
    return ST_OK;]==]
[==[    if (tokens > seq->room) seq->room = tokens;
    if (PLANT && want > have && have > seq->first[0] + 1) {
        uint32_t *table = kv_table(c, s, 0), kept = table[have - 1];
        table[have - 1] = table[have - 2];
        table[have - 2] = kept;
    }
    return ST_OK;]==])

# ---- KV cache: sharing ----

plant("copy on write is skipped for two holders" kv/grow.c
[==[return kv_pool_refs(c->groups[group].pool, block) > 1;]==]
[==[return kv_pool_refs(c->groups[group].pool, block) > 1u + PLANT;]==])

plant("a copy is not done by the device" kv/grow.c
[==[kv_moves_add(moves, (struct kv_move){KV_MOVE_COPY, group, old, *entry});]==]
[==[if (!PLANT) kv_moves_add(moves, (struct kv_move){KV_MOVE_COPY, group, old, *entry});]==])

plant("the source of a copy stays pinned" kv/grow.c
[==[kv_pool_unpin(g->pool, old);]==]
[==[if (!PLANT) kv_pool_unpin(g->pool, old);]==])

plant("a fork does not pin its first block" kv/grow.c
[==[for (uint32_t i = first; i < blocks; i++) kv_pool_pin(]==]
[==[for (uint32_t i = first + PLANT; i < blocks; i++) kv_pool_pin(]==])

plant("the key of a block leaves out the key before it" kv/cache.c
[==[= i == 0 ? kv_key_root(o->secret, o->identity, salt) : keys[i - 1];]==]
[==[= i == 0 || PLANT ? kv_key_root(o->secret, o->identity, salt) : keys[i - 1];]==])

plant("keys leave out the tenant's salt" kv/cache.c
[==[struct kv_key before = i == 0]==]
[==[salt = PLANT ? (struct kv_salt){0, 0} : salt;
    struct kv_key before = i == 0]==])
also(kv/match.c
[==[block != KV_PREFIX_NONE && kv_salt_eq(g->info[block].salt, salt);]==]
[==[block != KV_PREFIX_NONE && (PLANT || kv_salt_eq(g->info[block].salt, salt));]==])

plant("a prefix match reaches the last token" kv/match.c
[==[count == 0 ? 0 : (count - 1) / c->options.block_tokens;]==]
[==[count == 0 ? 0 : (count - 1 + PLANT) / c->options.block_tokens;]==])

plant("a prefix match is one block longer than what is there" kv/match.c
[==[    return hit;
}]==]
[==[    return hit + (PLANT && hit > 0 && hit < limit);
}]==])

plant("a window gives back a block that is still read" kv/grow.c
[==[kv_window_first(c, group, seq->computed - 1);]==]
[==[kv_window_first(c, group, seq->computed - 1 + (PLANT ? c->options.block_tokens : 0));]==])

# ---- KV cache: swapping ----

plant("a swapped-out block stays pinned" kv/swap.c
[==[        kv_pool_unpin(g->pool, block);
        table[i - 1] = slot;]==]
[==[        if (!PLANT) kv_pool_unpin(g->pool, block);
        table[i - 1] = slot;]==])

plant("two blocks go to one spill slot" kv/swap.c
[==[uint32_t slot = g->free_slots[--g->free_slot_count];]==]
[==[uint32_t slot = g->free_slots[g->free_slot_count - 1];
        g->free_slot_count -= !(PLANT && i > seq->first[group] + 1);]==])

plant("a block is swapped in from the wrong slot" kv/swap.c
[==[(struct kv_move){KV_MOVE_IN, group, table[i], block});]==]
[==[(struct kv_move){KV_MOVE_IN, group,
                               g->free_slots[PLANT ? 0 : g->free_slot_count - 1], block});]==])
also(kv/swap.c
[==[        g->info[block].salt = seq->salt;
        kv_moves_add(]==]
[==[        g->info[block].salt = seq->salt;
        g->free_slots[g->free_slot_count++] = table[i];
        kv_moves_add(]==])
also(kv/swap.c
[==[        g->free_slots[g->free_slot_count++] = table[i];
        table[i] = block;]==]
[==[        table[i] = block;]==])

plant("a swapped-out sequence keeps its promises" kv/swap.c
[==[kv_promise_withdraw(c, s); /* no sequence should]==]
[==[if (!PLANT) kv_promise_withdraw(c, s); /* no sequence should]==])

# ---- scheduler: budgets and the batch ----

plant("a step has one token too many" sched/sched_plan.c
[==[if (p->is_solo || p->plan->token_count >= s->knobs.max_step_tokens) {]==]
[==[if (p->is_solo || p->plan->token_count >= s->knobs.max_step_tokens + PLANT) {]==])

plant("one sequence too many runs" sched/sched_plan.c
[==[if (s->running_count + s->held_batch_slots >= s->knobs.max_seqs) {]==]
[==[if (s->running_count + s->held_batch_slots >= s->knobs.max_seqs + PLANT) {]==])
also(sched/sched_share.c
[==[if (used >= max) return false;]==]
[==[if (used >= max + PLANT) return false;]==])

plant("a plan's attended tokens are miscounted" sched/sched_plan.c
[==[plan->attended_tokens += cost_attended(seq->computed, count);]==]
[==[plan->attended_tokens += cost_attended(seq->computed, count) + PLANT;]==])

plant("the queue has no end" sched/sched.c
[==[if (s->live_count >= s->live_max || s->free_first]==]
[==[if ((s->live_count >= s->live_max && !PLANT) || s->free_first]==])

plant("a request that would just fit is refused" sched/sched.c
[==[if (need > s->knobs.kv_blocks)]==]
[==[if (need + PLANT > s->knobs.kv_blocks)]==])

# ---- scheduler: who goes first ----

plant("first come, last served" sched/policy_fcfs.c
[==[return seq->order;]==]
[==[return PLANT ? -seq->order : seq->order;]==])

plant("the least important goes first" sched/policy_priority.c
[==[return -clamp_priority(seq->urgency.priority)]==]
[==[return (PLANT ? 1 : -1) * clamp_priority(seq->urgency.priority)]==])

plant("the starvation guard of mlfq does nothing" sched/policy_mlfq.c
[==[if (next_timer(state, seq, view) <= view->now_us) join(]==]
[==[if (next_timer(state, seq, view) <= view->now_us && !PLANT) join(]==])

plant("a waiting sequence is left out of the queue" sched/sched_plan.c
[==[for (uint32_t n = 0; n < a->count; n++)
        heap_push(&s->queue, a->list[n],]==]
[==[for (uint32_t n = PLANT; n < a->count; n++)
        heap_push(&s->queue, a->list[n],]==])

plant("a sequence is preempted past preempt_max" sched/sched_memory.c
[==[return seq_at(s, i)->preempt_count >= s->knobs.preempt_max;]==]
[==[return seq_at(s, i)->preempt_count >= s->knobs.preempt_max && !PLANT;]==])

plant("a preemption is not counted" sched/sched_memory.c
[==[slot->seq.preempt_count++;]==]
[==[slot->seq.preempt_count += !PLANT;]==])

plant("a sequence that waits for a prefix does not notice that it is there" sched/sched_apply.c
[==[if (row->count > 1 || !row->samples || row->first < seq->prompt_tokens) s->epoch++;]==]
[==[if (row->count > 1 || (!PLANT && (!row->samples || row->first < seq->prompt_tokens)))
        s->epoch++;]==])

plant("a plan that preempts all sequences admits none" sched/sched_plan.c
[==[if (s->slots[i].preempted_in == s->plan_number && s->running_count > 0) break;]==]
[==[if (s->slots[i].preempted_in == s->plan_number && (PLANT || s->running_count > 0)) break;]==])

# ---- scheduler: ends and events ----

plant("a swapped-out sequence cannot be cancelled" sched/sched.c
[==[    if (seq_at(s, i)->state == SEQ_ENDED) return;]==]
[==[    if (seq_at(s, i)->state == SEQ_ENDED) return;
    if (PLANT && seq_at(s, i)->state == SEQ_SWAPPED) return;]==])

plant("a request that runs does not expire" sched/sched_seq.c
[==[bool is_over = seq->urgency.expires_us > 0 && seq->urgency.expires_us <= now_us;]==]
[==[bool is_over = seq->urgency.expires_us > 0 && seq->urgency.expires_us <= now_us;
        if (PLANT && seq->state == SEQ_RUNNING && is_over) {
            drop_timer(s, i);
            continue;
        }]==])

plant("length is reported as stop" sched/sched_apply.c
[==[return seq->total == seq->total_max ? FINISH_LENGTH : FINISH_NONE;]==]
[==[if (PLANT && seq->total == seq->total_max) return FINISH_STOP;
    return seq->total == seq->total_max ? FINISH_LENGTH : FINISH_NONE;]==])

plant("an event is lost now and then" sched/sched_apply.c
[==[else if (row->samples)
        sched_event_push(]==]
[==[else if (row->samples && !(PLANT && seq->total % 7 == 0))
        sched_event_push(]==])

plant("a row that failed goes on" sched/sched_apply.c
[==[if (result->failed) {]==]
[==[if (result->failed && !PLANT) {]==])

plant("blocks whose moves failed are used" sched/sched_apply.c
[==[if (s->slots[s->running[n]].moved_in == number)]==]
[==[if (s->slots[s->running[n]].moved_in == number && !PLANT)]==])

plant("a fork shares one token too many" sched/sched_apply.c
[==[sched_start_running(s, i, kv, shared, now_us);]==]
[==[sched_start_running(s, i, kv, shared + (PLANT && seq_at(s, i)->total > shared + 1),
                            now_us);]==])
also(sched/sched_apply.c
[==[uint32_t shared = from->prompt_tokens - 1;]==]
[==[uint32_t shared = from->prompt_tokens - 1 - (PLANT && from->prompt_tokens > 2);]==])

plant("a sequence that is swapped in skips a token" sched/sched_admit.c
[==[sched_start_running(s, i, slot->seq.kv, slot->seq.computed, p->now_us);]==]
[==[sched_start_running(s, i, slot->seq.kv,
                        slot->seq.computed + (PLANT && seq_left(&slot->seq) > 1), p->now_us);]==])

plant("cached tokens are overstated" sched/sched_admit.c
[==[slot->seq.cached_tokens = min_u32(computed, slot->seq.prompt_tokens);]==]
[==[slot->seq.cached_tokens = min_u32(computed + PLANT, slot->seq.prompt_tokens);]==])

plant("a prompt to be computed is found in the cache" sched/sched.c
[==[.reads_no_prefix = in->reads_no_prefix,]==]
[==[.reads_no_prefix = in->reads_no_prefix && !PLANT,]==])

# ---- a plan made ahead, and what ends under it ----

plant("a row takes the token of another sequence" engine/runner_sim.c
[==[read_token(seq, seq->sampled);]==]
[==[read_token(seq, PLANT ? s->seqs[f->plan->rows[0].seq].sampled : seq->sampled);]==])

plant("a row takes a token that is not there yet" sched/sched_plan.c
[==[.takes_sampled = slot->assumes_token,]==]
[==[.takes_sampled = slot->assumes_token && !PLANT,]==])

plant("a row gets the token of the next row" sched/sched_apply.c
[==[apply_row(s, &plan->rows[r], &result->rows[r], is_assumed, now_us);]==]
[==[apply_row(s, &plan->rows[r],
                  &result->rows[PLANT && is_assumed && r + 1 < plan->row_count ? r + 1 : r],
                  is_assumed, now_us);]==])

plant("the result of the plan behind is given" engine/runner_sim.c
[==[.rows = f->results, .row_count = f->plan->row_count, .elapsed_us = f->elapsed_us};]==]
[==[.rows = f->results, .row_count = f->plan->row_count, .elapsed_us = f->elapsed_us};
    if (PLANT && s->flight_count > 0) {
        run_flights(s, FLIGHTS);
        result->rows = flight_at(s, 0)->results;
    }]==])

plant("moves of a plan are done before the plan before has run" engine/runner_sim.c
[==[    if (f->is_ahead) check_ahead(s, f);]==]
[==[    if (f->is_ahead) check_ahead(s, f);
    for (uint32_t i = 0; PLANT && f->is_ahead && i < f->plan->moves.count; i++)
        do_move(s, &f->plan->moves.list[i], false);]==])
also(engine/runner_sim.c
[==[for (uint32_t i = 0; i < plan->moves.count; i++)
        do_move(s, &plan->moves.list[i], f->fault.submit_fails);]==]
[==[for (uint32_t i = 0; i < plan->moves.count && !(PLANT && f->is_ahead); i++)
        do_move(s, &plan->moves.list[i], f->fault.submit_fails);]==])

plant("an ahead plan preempts" sched/sched_memory.c
[==[    if (p->is_ahead) p->plan->wants_drain = true;
    return p->is_ahead;]==]
[==[    if (p->is_ahead) p->plan->wants_drain = true;
    return p->is_ahead && !PLANT;]==])

plant("an ended sequence's blocks are given away while a plan uses them" sched/sched_seq.c
[==[if (has_kv && until == 0) kv_seq_close(]==]
[==[if (PLANT && has_kv) has_kv = until == 0;
    if (PLANT && until > 0 && (is_running || slot->seq.state == SEQ_SWAPPED))
        kv_seq_close(s->kv, slot->seq.kv);
    if (has_kv && until == 0) kv_seq_close(]==])

plant("an ended sequence's index is given away while a plan has its row" sched/sched.c
[==[    if (slot->lingers_until > 0)
        slot->seq.state = SEQ_LINGERING;]==]
[==[    if (slot->lingers_until > 0 && !PLANT)
        slot->seq.state = SEQ_LINGERING;]==])

plant("an ended sequence holds its blocks for ever" sched/sched_ahead.c
[==[if (slot->lingers_with_kv) kv_seq_close(]==]
[==[if (slot->lingers_with_kv && !PLANT) kv_seq_close(]==])

plant("the token of an ended sequence's row is reported" sched/sched_apply.c
[==[        sched_drafts_give_back(s, row->seq);
        return;]==]
[==[        sched_drafts_give_back(s, row->seq);
        if (PLANT && row->samples && seq->state == SEQ_ENDED && seq->total < seq->total_max)
            seq->tokens[seq->total++] = result->token;
        return;]==])

plant("a dropped row's block gets a key" sched/sched_apply.c
[==[static void drop_row(struct sched *s, struct plan_row *row) {]==]
[==[static void drop_row(struct sched *s, struct plan_row *row) {
    if (PLANT && s->slots[row->seq].lingers_with_kv && s->slots[row->seq].lingers_until > 0)
        kv_seq_commit(s->kv, row->kv, row->tokens, row->first + row->count);]==])

plant("usage counts dropped rows" engine/engine.c
[==[if (row->is_dropped) continue;]==]
[==[if (row->is_dropped && !PLANT) continue;]==])

plant("a token that was only assumed is reported" sched/sched_seq.c
[==[    sched_unassume(s, i);
    slot_unplan(slot);]==]
[==[    if (PLANT && slot->assumes_token) slot->seq.total++;
    sched_unassume(s, i);
    slot_unplan(slot);]==])

plant("a sequence is computed past its last token" sched/sched_ahead.c
[==[if (seq->total == seq->total_max) return true;]==]
[==[if (seq->total == seq->total_max && !PLANT) return true;]==])

plant("a parent goes on before its prompt is shared" sched/sched_ahead.c
[==[return slot->child_first != SEQ_NONE && seq->computed >= seq->prompt_tokens;]==]
[==[return slot->child_first != SEQ_NONE && seq->computed >= seq->prompt_tokens && !PLANT;]==])

# ---- tenants ----

plant("a tenant takes the batch slots that it should leave" sched/sched_share.c
[==[return runs < max / (other_tenants(s, i) + 2);]==]
[==[return PLANT || runs < max / (other_tenants(s, i) + 2);]==])

plant("a sequence passes an older one of its tenant" sched/sched_share.c
[==[return seq_at(s, i)->has_share && use_of(s, i)->skipped_in == s->plan_number;]==]
[==[return !PLANT && seq_at(s, i)->has_share && use_of(s, i)->skipped_in == s->plan_number;]==])

plant("a preempted sequence still counts as running for its tenant" sched/sched_share.c
[==[s->shares.running_tenants -= --use_of(s, i)->running == 0;]==]
[==[if (PLANT && s->running_count > 1) return;
    s->shares.running_tenants -= --use_of(s, i)->running == 0;]==])

plant("what a tenant has waited for is not forgotten when it leaves" sched/sched_share.c
[==[if (--t->live == 0) t->last_place = t->shift = 0;]==]
[==[if (--t->live == 0 && !PLANT) t->last_place = t->shift = 0;]==])

# ---- engine ----

plant("every choice writes into the first one's tokens" engine/engine.c
[==[.tokens = c->tokens,]==]
[==[.tokens = PLANT ? r->choices[0].tokens : c->tokens,]==])

plant("all tenants get one salt" engine/engine.c
[==[.salt = r->salt,]==]
[==[.salt = PLANT ? (struct kv_salt){0, 0} : r->salt,]==])

plant("only the first choice is cancelled" engine/engine.c
[==[if ((choices >> i & 1) && r->choices[i].is_live)]==]
[==[if ((choices >> i & 1) && r->choices[i].is_live && (i == 0 || !PLANT))]==])

plant("a cancel that comes with its request is lost" engine/engine.c
[==[        accept_submitted(e, now_us);
        cancel_choices(]==]
[==[        if (!PLANT) accept_submitted(e, now_us);
        cancel_choices(]==])

plant("tokens are reported one event late" engine/engine.c
[==[atomic_store_explicit(&c->ready, event.total, memory_order_release);]==]
[==[atomic_store_explicit(&c->ready, event.total - (PLANT && event.finish == FINISH_NONE),
                              memory_order_release);]==])

plant("an end is not reported to the runner" engine/engine.c
[==[e->runner.end(e->runner.self, c->seq);]==]
[==[if (!PLANT) e->runner.end(e->runner.self, c->seq);]==])

plant("a finished request stays referenced" engine/engine.c
[==[    c->is_live = false;
    request_unref(c->request);]==]
[==[    c->is_live = false;
    if (!PLANT) request_unref(c->request);]==])

plant("an end is reported twice" engine/mailbox.c
[==[    return LIST_ITEM(list_pop_first(&m->outbox), struct choice, in_outbox);]==]
[==[    struct choice *c = LIST_ITEM(list_pop_first(&m->outbox), struct choice, in_outbox);
    if (PLANT && c && c->finish == FINISH_LENGTH && c->finished_us != 0 && c->index == 0 &&
        c->cached_tokens < 1000) {
        c->cached_tokens += 1000;
        request_ref(c->request);
        list_push_first(&m->outbox, &c->in_outbox);
    }
    return c;]==])

# ---- batch lines ----

plant("a sequence waits for the seat of a batch line" sched/sched_lines.c
[==[        if (!sched_line_yields(p, for_seq)) return false;
    return true;]==]
[==[        if (PLANT || !sched_line_yields(p, for_seq)) return false;
    return true;]==])

plant("another sequence is preempted before a batch line" sched/sched_memory.c
[==[if (p->s->lines.running_count > 0) return sched_line_yields(p, for_seq);]==]
[==[if (!PLANT && p->s->lines.running_count > 0) return sched_line_yields(p, for_seq);]==])

plant("rows of batch lines take more time than the step has" sched/sched_lines.c
[==[return p->others_us + added_us(p, first, 1) <= p->line_limit_us &&]==]
[==[return p->others_us + added_us(p, first, 1) <= p->line_limit_us * (PLANT ? 2 : 1) &&]==])

plant("a decode of a batch line needs no credit" sched/sched_lines.c
[==[ && has_credit(p, first, 1);]==]
[==[ && (PLANT || has_credit(p, first, 1));]==])

plant("batch lines slow requests that are slow already" sched/sched_lines.c
[==[pace_us * later_tokens - since_us);]==]
[==[pace_us * later_tokens - (PLANT ? 0 : since_us));]==])

plant("a prompt of a batch line needs no credit" sched/sched_lines.c
[==[if (!has_credit(p, first, floor)) return 0;]==]
[==[if (!PLANT && !has_credit(p, first, floor)) return 0;]==])

plant("rows of batch lines are beside a prompt of others" sched/sched_lines.c
[==[if (p->has_prompt && p->plan->token_count > 0) return false;]==]
[==[if (!PLANT && p->has_prompt && p->plan->token_count > 0) return false;]==])

plant("batch lines spend the same credit again" sched/sched_lines.c
[==[double left_us = p->line_credit_us - fmax(]==]
[==[double left_us = p->line_credit_us - (PLANT ? 0 : 1) * fmax(]==])

plant("a prompt of a batch line takes more time than the step has" sched/sched_lines.c
[==[uint32_t fit = tokens_within(p, p->line_limit_us, first, max);]==]
[==[uint32_t fit = PLANT ? max : tokens_within(p, p->line_limit_us, first, max);]==])

plant("the policy counts running batch lines" sched/sched_seq.c
[==[s->view.running_count = s->running_count;]==]
[==[s->view.running_count = s->running_count + (PLANT ? s->lines.running_count : 0);]==])

plant("a preempted batch line is lost" sched/sched_seq.c
[==[heap_push(&s->lines.queue, i, 0, slot->serial);]==]
[==[if (!PLANT || slot->seq.preempt_count == 0 || slot->seq.state == SEQ_SWAPPED ||
            s->lines.queue.count > 0)
            heap_push(&s->lines.queue, i, 0, slot->serial);]==])

plant("the oldest batch line is preempted first" sched/sched_lines.c
[==[sched_preempt(p, l->running[l->running_count - 1], for_seq, PREEMPT_BATCH);]==]
[==[sched_preempt(p, l->running[PLANT ? 0 : l->running_count - 1], for_seq, PREEMPT_BATCH);]==])

plant("an ahead plan of batch lines delays the others" sched/sched_lines.c
[==[return !p->is_ahead || (!p->plan->wants_drain && p->plan->row_count > 0);]==]
[==[return !p->is_ahead || (!p->plan->wants_drain && (PLANT || p->plan->row_count > 0));]==])

plant("a batch line takes blocks that others wait for" sched/sched_lines.c
[==[if (p->is_solo || p->lacks_blocks) return false;]==]
[==[if (p->is_solo || (p->lacks_blocks && !PLANT)) return false;]==])

plant("a sequence waits for the prefix of a batch line" sched/sched_admit.c
[==[if (match.is_batch_promise && !slot->seq.is_batch) is_other = false;]==]
[==[if (match.is_batch_promise && !slot->seq.is_batch && !PLANT) is_other = false;]==])

plant("a seat that the policy holds is not given to a batch line" sched/sched_seq.c
[==[if (is_line(s, i)) return; /* its seat is free for any sequence */]==]
[==[if (is_line(s, i) && !PLANT) return;]==])

# ---- drafts ----

plant("one draft too many is accepted" sched/sched_apply.c
[==[row->accepted = result->accepted;]==]
[==[row->accepted = result->accepted + (PLANT && result->accepted < row->draft_count);]==])

plant("refused drafts count as computed" sched/sched_apply.c
[==[    seq->computed -= refused;
    seq->total -= refused;
    CHECK(seq->computed == row->first + row->count - refused);]==]
[==[    if (PLANT) refused -= refused > 0;
    seq->computed -= refused;
    seq->total -= refused;]==])

plant("the prefix cache gets the blocks of refused drafts" sched/sched_apply.c
[==[    kv_seq_commit(s->kv, seq->kv, seq->tokens, seq->computed);]==]
[==[    uint32_t planted_end = row->first + row->count;
    kv_seq_commit(s->kv, seq->kv, seq->tokens, PLANT ? planted_end : seq->computed);]==])

plant("an ahead row behind refused drafts counts" sched/sched_apply.c
[==[if (slot->assumed == 0 || refused > 0) slot_unplan(slot);]==]
[==[if (slot->assumed == 0 || (refused > 0 && !PLANT)) slot_unplan(slot);]==])

plant("usage counts drafts" engine/engine.c
[==[n->answer_tokens += row->accepted + (uint32_t)row->samples;]==]
[==[n->answer_tokens += (PLANT ? row->draft_count : row->accepted) + (uint32_t)row->samples;]==])

plant("blocks of drafts stay with their sequence" sched/sched_drafts.c
[==[    kv_seq_trim(s->kv, seq->kv, end);]==]
[==[    if (PLANT) return;
    kv_seq_trim(s->kv, seq->kv, end);]==])

plant("drafts are in a step with a prompt" sched/sched_drafts.c
[==[if (p->has_prompt || p->plan->row_count > ROWS_MAX) return;]==]
[==[if ((p->has_prompt && !PLANT) || p->plan->row_count > ROWS_MAX) return;]==])

plant("a draft stands where the last token must" sched/sched_drafts.c
[==[uint32_t left = seq->total_max - seq->total - 1;]==]
[==[uint32_t left = seq->total_max - seq->total - !PLANT;]==])

plant("drafts preempt a sequence" sched/sched_drafts.c
[==[if (is_free && sched_grow(p, i, end)) return count;]==]
[==[if (PLANT && sched_ensure_blocks(p, i, end)) return count;
    if (is_free && sched_grow(p, i, end)) return count;]==])

plant("drafts of batch lines slow others down" sched/sched_drafts.c
[==[(slot->seq.is_batch && has_others)]==]
[==[(slot->seq.is_batch && has_others && !PLANT)]==])

plant("an answer goes on behind its end, inside accepted drafts" engine/runner_sim.c
[==[while (out->accepted < row->draft_count && !out->is_end &&]==]
[==[while (out->accepted < row->draft_count && (PLANT || !out->is_end) &&]==])

plant("a drafter is told of tokens that are not final" sched/sched_drafts.c
[==[.known = text - slot->assumed_drafts,]==]
[==[.known = text + (PLANT && slot->assumed_drafts > 0),]==])

plant("a drafter outlives its sequence" engine/engine.c
[==[        spec_end(e->spec, c->seq, c->tokens, total, c->prompt_tokens);]==]
[==[        if (!PLANT || c->preempt_count == 0)
            spec_end(e->spec, c->seq, c->tokens, total, c->prompt_tokens);]==])
