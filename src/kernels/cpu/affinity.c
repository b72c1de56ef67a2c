/* kernels/cpu/affinity.c - see kernels/cpu/affinity.h for the contract. */
#define _GNU_SOURCE
#include "kernels/cpu/affinity.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "kernels/cpu/cpu_int.h"
#include "kernels/cpu/topology.h"

enum { TEXT_BYTES = 1024, SYS_BYTES = 128, HUGE_BYTES = 2 << 20 };

struct affinity {
    struct cpu_machine machine;
    struct topology *topology; /* NULL: one node, so memory has no place */
    uint32_t threads;
    uint32_t cpus[POOL_THREADS_MAX];  /* of each thread */
    uint32_t nodes[POOL_THREADS_MAX]; /* likewise */
    bool has_caller;
    pthread_t caller; /* the thread that is bound as the first */
    cpu_set_t before; /* its mask until then */
    char text[TEXT_BYTES];
};

/* ---- the decision ---- */

/* How many processors of the same core stand before it. */
static uint32_t sibling_rank(const struct cpu_machine *m, uint32_t i) {
    uint32_t rank = 0;
    while (i > rank && m->cpus[i - rank - 1].core == m->cpus[i].core) rank++;
    return rank;
}

static uint32_t node_count(const struct cpu_machine *m) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->cpu_count; i++)
        if (i == 0 || m->cpus[i].node != m->cpus[i - 1].node) count++;
    return count;
}

static uint32_t core_count(const struct cpu_machine *m) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->cpu_count; i++) count += sibling_rank(m, i) == 0;
    return count;
}

/* The first processor of that rank on the node that is not taken, or cpu_count. */
static uint32_t find_free(const struct cpu_machine *m, const bool *taken, uint32_t node,
                          uint32_t rank) {
    uint32_t i = 0;
    while (i < m->cpu_count && (taken[i] || m->cpus[i].node != node || sibling_rank(m, i) != rank))
        i++;
    return i;
}

/* One more of every node that has one; returns how many that were, at most `wanted`. */
static uint32_t take_round(const struct cpu_machine *m, uint32_t rank, uint32_t wanted,
                           bool *taken) {
    uint32_t got = 0;
    for (uint32_t i = 0; i < m->cpu_count && got < wanted; i++) {
        if (i > 0 && m->cpus[i].node == m->cpus[i - 1].node) continue;
        uint32_t found = find_free(m, taken, m->cpus[i].node, rank);
        if (found == m->cpu_count) continue;
        taken[found] = true;
        got++;
    }
    return got;
}

static bool has_reason(const struct cpu_machine *m, enum cpu_placement mode, uint32_t threads) {
    uint32_t cores = core_count(m);
    if (mode == CPU_PLACE_OFF || threads > m->cpu_count || m->cpu_count == 0) return false;
    if (mode == CPU_PLACE_ON) return true;
    return threads >= pool_threads_for(cores) && (node_count(m) > 1 || cores < m->cpu_count);
}

bool affinity_assign(const struct cpu_machine *m, enum cpu_placement mode, uint32_t threads,
                     uint32_t *cpus) {
    bool taken[MACHINE_CPUS_MAX] = {false};
    uint32_t got = 0, thread = 0;
    if (!has_reason(m, mode, threads)) return false;
    for (uint32_t rank = 0; got < threads; rank++) {
        uint32_t more;
        do {
            more = take_round(m, rank, threads - got, taken);
            got += more;
        } while (more > 0);
    }
    for (uint32_t i = 0; i < m->cpu_count; i++)
        if (taken[i]) cpus[thread++] = m->cpus[i].cpu;
    CHECK(thread == threads);
    return true;
}

/* ---- threads ---- */

/* "0-3,8": runs of processors that follow each other. */
static void write_text(struct affinity *p) {
    size_t used = 0;
    for (uint32_t i = 0; i < p->threads;) {
        uint32_t end = i + 1;
        while (end < p->threads && p->cpus[end] == p->cpus[end - 1] + 1) end++;
        int bytes =
            snprintf(p->text + used, sizeof(p->text) - used, end - i > 1 ? "%s%u-%u" : "%s%u",
                     i ? "," : "", p->cpus[i], p->cpus[end - 1]);
        used += bytes > 0 ? (size_t)bytes : 0;
        if (used >= sizeof(p->text)) return; /* cut short: it is for people */
        i = end;
    }
}

/* The file holds just "0"; so it counts, too, where there is none. */
static bool says_zero(const char *path) {
    char storage[SYS_BYTES];
    struct str text;
    enum status st = file_read_short(path, storage, sizeof(storage), &text);
    return st == ST_MISSING || (st == ST_OK && str_is(str_trim(text), "0"));
}

/* One node, one processor to a core: most machines. Reading such a one costs more milliseconds of
 * a start than there is to win. */
static bool is_plain_machine(void) {
    return says_zero("/sys/devices/system/node/online") &&
           says_zero("/sys/devices/system/cpu/smt/active");
}

static uint32_t node_of(const struct cpu_machine *m, uint32_t cpu) {
    for (uint32_t i = 0; i < m->cpu_count; i++)
        if (m->cpus[i].cpu == cpu) return m->cpus[i].node;
    return 0;
}

static void say_unbound(enum cpu_placement mode, uint32_t threads, uint32_t cpu_count,
                        struct err *why) {
    if (mode != CPU_PLACE_ON) return;
    if (cpu_count == 0)
        (void)err_set(why, ST_UNAVAILABLE,
                      "no thread is bound: nothing is known of the processors, since jitney was "
                      "built without hwloc or hwloc cannot read this machine");
    else
        (void)err_set(why, ST_UNAVAILABLE,
                      "no thread is bound: there are %u threads, and %u processors for them",
                      threads, cpu_count);
}

struct affinity *affinity_create(enum cpu_placement mode, uint32_t threads, struct err *why) {
    CHECK(threads >= 1);
    CHECK(threads <= POOL_THREADS_MAX);
    if (mode == CPU_PLACE_OFF || (mode == CPU_PLACE_AUTO && is_plain_machine())) return NULL;
    struct affinity *p = mem_zalloc(sizeof(*p));
    if (!p) return NULL;
    p->threads = threads;
    bool bound = cpu_machine_read(&(struct cpu_machine_source){.synthetic = NULL}, &p->machine) &&
                 affinity_assign(&p->machine, mode, threads, p->cpus);
    if (!bound) {
        say_unbound(mode, threads, p->machine.cpu_count, why);
        mem_free(p);
        return NULL;
    }
    for (uint32_t i = 0; i < threads; i++) p->nodes[i] = node_of(&p->machine, p->cpus[i]);
    if (node_count(&p->machine) > 1) p->topology = topology_open();
    write_text(p);
    return p;
}

void affinity_destroy(struct affinity *p) {
    if (!p) return;
    if (p->has_caller && pthread_equal(p->caller, pthread_self()))
        (void)sched_setaffinity(0, sizeof(p->before), &p->before);
    topology_close(p->topology);
    mem_free(p);
}

const char *affinity_text(const struct affinity *p) { return p ? p->text : NULL; }

/* Refused, the thread runs where the system likes. */
static void bind_self(const struct affinity *p, uint32_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(p->cpus[thread], &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void bind_share(void *ctx, uint32_t idx, uint32_t count) {
    (void)count;
    if (idx > 0) bind_self(ctx, idx);
}

void affinity_bind_workers(struct affinity *p, struct pool *pool) {
    if (!p) return;
    CHECK(pool_threads(pool) == p->threads);
    pool_run(pool, bind_share, p);
}

void affinity_bind_caller(struct affinity *p) {
    if (!p || (p->has_caller && pthread_equal(p->caller, pthread_self()))) return;
    p->has_caller = sched_getaffinity(0, sizeof(p->before), &p->before) == 0;
    if (!p->has_caller) return;
    p->caller = pthread_self();
    bind_self(p, 0);
}

/* ---- memory ---- */

void affinity_spread(const struct affinity *p, void *ptr, size_t bytes) {
    if (p && p->topology && ptr && bytes >= HUGE_BYTES) topology_spread(p->topology, ptr, bytes);
}

/* Panels [first, end) of a weight, cut to whole huge pages: a page that two nodes share stays
 * where it is, and a weight too small for one is in the caches anyway. */
static void move_panels(const struct affinity *p, const struct packed *w, struct range panels,
                        uint32_t node) {
    uintptr_t first = (uintptr_t)pack_panel(w, 0, panels.first);
    uintptr_t end = (uintptr_t)pack_panel(w, 0, panels.end);
    first = (first + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    end = end / HUGE_BYTES * HUGE_BYTES;
    if (first < end) topology_move(p->topology, (void *)first, end - first, node);
}

static void move_parts(const struct affinity *p, const struct matmul_part *parts, uint32_t count) {
    for (uint32_t thread = 0; thread < p->threads; thread++) {
        for (uint32_t i = 0; i < count; i++) {
            struct range mine = mm_share(parts, count, i, thread, p->threads);
            const struct packed *w = parts[i].weight->prepared;
            if (mine.first < mine.end) move_panels(p, w, mine, p->nodes[thread]);
        }
    }
}

void affinity_move_weights(const struct affinity *p, const struct tape *t) {
    if (!p || !p->topology) return;
    for (uint32_t i = 0; i < tape_op_count(t); i++) {
        const struct op *op = tape_op(t, i);
        if (op->kind == OP_MATMUL && op->matmul.parts[0].weight->prepared)
            move_parts(p, op->matmul.parts, op->matmul.part_count);
    }
}
