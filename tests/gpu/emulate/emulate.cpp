/* tests/gpu/emulate/emulate.cpp - fibers and barriers; see tests/gpu/emulate/emulate.h. */
#include "emulate.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>

static constexpr size_t STACK_BYTES = 64 << 10;
static constexpr uint32_t THREADS_MAX = 1024, CLUSTER_MAX = EMU_RESIDENT_MAX, NAMED_MAX = 16;

enum state { RUNS, AT_BLOCK, AT_WARP, AT_CLUSTER, AT_GRID, ENDED };
static constexpr uint32_t IDLE_MAX = 1 << 20; /* turns in which no barrier of hardware is passed */
static constexpr uint32_t GRID_IDLE_MAX = 64; /* the same before other blocks of a grid go on */

struct fiber {
    void *sp;
    uint8_t *stack;
    enum state state;
    uint32_t exchanges; /* of its warp, so far */
};

struct warp {
    uint64_t table[2][32]; /* by turns, so that a table stays while the next one is filled */
};

/* bar.sync by number. */
struct named_barrier {
    uint32_t arrived, phases;
};

/* A block of a cluster or of a resident grid. */
struct block {
    dim3 index;
    struct fiber fibers[THREADS_MAX];
    struct warp warps[THREADS_MAX / 32];
    struct named_barrier named[NAMED_MAX];
    uint8_t *dynamic_shared;
};

dim3 threadIdx, blockIdx, blockDim, gridDim;
static struct block blocks[CLUSTER_MAX]; /* the first alone where there are no clusters */
static uint32_t block_count, block_rank;
static bool is_resident;     /* the blocks are a grid, not a cluster */
static struct fiber *fibers; /* of the block that runs */
static struct warp *warps;
static uint8_t *dynamic_shared;
static uint32_t current, thread_count;
static size_t dynamic_bytes;
static void *scheduler_sp;
static emu_body_fn *block_body;
static void *block_ctx;

/* Saves what a call must keep, and goes on with another stack. */
extern "C" void emu_switch(void **from, void *to);
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static void yield_as(enum state s) {
    fibers[current].state = s;
    emu_switch(&fibers[current].sp, scheduler_sp);
}

static void fiber_main(void) {
    block_body(block_ctx);
    yield_as(ENDED);
    abort();
}

static void fiber_start(struct fiber *f) {
    if (!f->stack) f->stack = (uint8_t *)malloc(STACK_BYTES);
    uintptr_t top = ((uintptr_t)f->stack + STACK_BYTES) & ~(uintptr_t)63;
    void **sp = (void **)top - 1; /* as if called: 8 below a multiple of 16 */
    *--sp = (void *)fiber_main;
    sp -= 6;
    memset(sp, 0, 6 * sizeof(void *));
    f->sp = sp;
    f->state = RUNS;
    f->exchanges = 0;
}

void emu_block_barrier(void) { yield_as(AT_BLOCK); }
void emu_warp_barrier(void) { yield_as(AT_WARP); }
void emu_cluster_barrier(void) { yield_as(AT_CLUSTER); }
void emu_yield(void) { yield_as(RUNS); }
void emu_yield_block(void) { yield_as(AT_GRID); }
uint32_t emu_block_rank(void) { return block_rank; }

void emu_named_barrier(uint32_t barrier, uint32_t threads) {
    struct named_barrier *b = &blocks[block_rank].named[barrier];
    uint32_t mine = b->phases;
    if (++b->arrived == threads) {
        b->arrived = 0;
        b->phases++;
    }
    while (b->phases == mine) emu_yield();
    emu_warp_barrier();
}

uint32_t emu_lane(void) { return current % 32; }
void *emu_dynamic_shared(void) { return dynamic_shared; }

const void *emu_cluster_at(const void *here, uint32_t rank) {
    size_t at = (size_t)((const uint8_t *)here - dynamic_shared);
    if (rank >= block_count || at >= dynamic_bytes) abort();
    return blocks[rank].dynamic_shared + at;
}

const uint64_t *emu_exchange(uint64_t mine) {
    uint64_t *table = warps[current / 32].table[fibers[current].exchanges++ % 2];
    table[current % 32] = mine;
    yield_as(AT_WARP);
    return table;
}

int __syncthreads_or(int flag) {
    static int any;
    emu_block_barrier();
    any = 0;
    emu_block_barrier();
    if (flag) any = 1;
    emu_block_barrier();
    return any;
}

static void set_index(uint32_t i) {
    threadIdx = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
}

/* Every thread runs as far as it gets. */
static void run_ready(void) {
    for (uint32_t i = 0; i < thread_count; i++) {
        if (fibers[i].state != RUNS) continue;
        current = i;
        set_index(i);
        emu_switch(&scheduler_sp, fibers[i].sp);
    }
}

/* A warp goes on once all its threads wait for each other, or have ended. */
static bool release_warps(void) {
    bool any = false;
    for (uint32_t w = 0; w < thread_count; w += 32) {
        uint32_t waiting = 0, ended = 0, count = thread_count - w < 32 ? thread_count - w : 32;
        for (uint32_t i = w; i < w + count; i++) {
            waiting += fibers[i].state == AT_WARP;
            ended += fibers[i].state == ENDED;
        }
        if (waiting == 0 || waiting + ended < count) continue;
        for (uint32_t i = w; i < w + count; i++)
            if (fibers[i].state == AT_WARP) fibers[i].state = RUNS;
        any = true;
    }
    return any;
}

static uint32_t count_of(enum state s) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < thread_count; i++) count += fibers[i].state == s;
    return count;
}

/* Those that wait at a barrier of all threads. */
static void release_all(enum state s) {
    for (uint32_t i = 0; i < thread_count; i++)
        if (fibers[i].state == s) fibers[i].state = RUNS;
}

/* is_over: all threads have ended, or wait for the other blocks of the cluster. */
static bool release_block(bool *is_over) {
    uint32_t waiting = count_of(AT_BLOCK), ended = count_of(ENDED);
    *is_over = ended + count_of(AT_CLUSTER) == thread_count;
    if (waiting == 0 || waiting + ended < thread_count) return false;
    release_all(AT_BLOCK);
    return true;
}

static bool any_runs(void) {
    for (uint32_t i = 0; i < thread_count; i++)
        if (fibers[i].state == RUNS) return true;
    return false;
}

/* Until its end, or until it waits for other blocks. Did a thread pass a barrier of hardware? */
static bool run_block(void) {
    bool is_over = false, has_passed = false;
    uint32_t idle = 0;
    for (;;) {
        run_ready();
        if (release_warps() || release_block(&is_over)) {
            idle = 0;
            has_passed = true;
            continue;
        }
        if (is_over) return has_passed;
        if (is_resident && (count_of(AT_GRID) > 0 || any_runs()) && ++idle > GRID_IDLE_MAX)
            return has_passed;
        if ((any_runs() || is_resident) && ++idle < IDLE_MAX) continue;
        fprintf(stderr, "emulate: threads of a block wait for each other\n");
        abort();
    }
}

static void enter_block(uint32_t rank) {
    block_rank = rank;
    fibers = blocks[rank].fibers;
    warps = blocks[rank].warps;
    dynamic_shared = blocks[rank].dynamic_shared;
    blockIdx = blocks[rank].index;
}

static void start_block(uint32_t rank, dim3 index) {
    blocks[rank].index = index;
    memset(blocks[rank].named, 0, sizeof(blocks[rank].named));
    enter_block(rank);
    memset(dynamic_shared, 0xff, dynamic_bytes); /* nothing may be relied on */
    for (uint32_t i = 0; i < thread_count; i++) fiber_start(&fibers[i]);
}

/* Blocks that follow each other in z from this one on. A block runs as far as it gets, then the
 * next; static shared memory, which they have in common here, is lost at a barrier of theirs. */
static void run_cluster(dim3 first) {
    bool is_over = false;
    for (uint32_t rank = 0; rank < block_count; rank++)
        start_block(rank, dim3(first.x, first.y, first.z + rank));
    while (!is_over) {
        is_over = true;
        for (uint32_t rank = 0; rank < block_count; rank++) {
            enter_block(rank);
            run_block();
            is_over = is_over && count_of(AT_CLUSTER) == 0;
        }
        for (uint32_t rank = 0; rank < block_count; rank++) {
            enter_block(rank);
            release_all(AT_CLUSTER);
        }
    }
}

/* Kernels that may have more dynamic shared memory than all others. */
enum { ALLOWED_MAX = 512, USUAL_BYTES = 48 << 10, STATIC_BYTES = 256, MOST_BYTES = 227 << 10 };
static struct {
    emu_kernel *kernel;
    size_t bytes;
} allowed[ALLOWED_MAX];
static uint32_t allowed_count;

void emu_allow_shared(emu_kernel *kernel, size_t bytes) {
    uint32_t i = 0;
    while (i < allowed_count && allowed[i].kernel != kernel) i++;
    if (i == ALLOWED_MAX || bytes > MOST_BYTES) abort();
    allowed[i].kernel = kernel;
    allowed[i].bytes = bytes;
    if (i == allowed_count) allowed_count++;
}

/* What a kernel has besides, its static shared memory, counts too; how much that is is not known
 * here. */
void emu_check_shared(emu_kernel *kernel, size_t bytes) {
    if (bytes <= USUAL_BYTES - STATIC_BYTES) return;
    for (uint32_t i = 0; i < allowed_count; i++)
        if (allowed[i].kernel == kernel && bytes <= allowed[i].bytes) return;
    fprintf(stderr, "emulate: a kernel asks for %zu bytes of shared memory, more than it may\n",
            bytes);
    abort();
}

/* All blocks of the grid, in turns. */
static void run_resident(void) {
    uint32_t idle = 0;
    bool is_over = false;
    for (uint32_t rank = 0; rank < block_count; rank++) start_block(rank, dim3(rank));
    while (!is_over) {
        bool has_passed = false;
        is_over = true;
        for (uint32_t rank = 0; rank < block_count; rank++) {
            enter_block(rank);
            release_all(AT_GRID);
            has_passed = run_block() || has_passed;
            is_over = is_over && count_of(ENDED) == thread_count;
        }
        idle = has_passed ? 0 : idle + 1;
        if (idle < IDLE_MAX / GRID_IDLE_MAX) continue;
        fprintf(stderr, "emulate: blocks of a grid wait for each other\n");
        abort();
    }
}

static void begin_run(dim3 grid, dim3 block, size_t shared_bytes, uint32_t at_once,
                      emu_body_fn *body, void *ctx) {
    gridDim = grid;
    blockDim = block;
    thread_count = block.x * block.y * block.z;
    if (at_once > CLUSTER_MAX || thread_count > THREADS_MAX) abort();
    block_body = body;
    block_ctx = ctx;
    block_count = at_once;
    dynamic_bytes = shared_bytes;
    for (uint32_t i = 0; i < at_once; i++)
        blocks[i].dynamic_shared =
            (uint8_t *)aligned_alloc(1024, (shared_bytes + 2047) / 1024 * 1024);
}

void emu_run(dim3 grid, dim3 block, size_t shared_bytes, uint32_t cluster, emu_body_fn *body,
             void *ctx) {
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); /* denormals are zero, as with -ftz=true */
    if (grid.y > 65535 || grid.z > 65535 || grid.z % cluster != 0) abort();
    begin_run(grid, block, shared_bytes, cluster, body, ctx);
    is_resident = false;
    for (uint32_t z = 0; z < grid.z; z += cluster)
        for (uint32_t y = 0; y < grid.y; y++)
            for (uint32_t x = 0; x < grid.x; x++) run_cluster(dim3(x, y, z));
    for (uint32_t i = 0; i < cluster; i++) free(blocks[i].dynamic_shared);
    _mm_setcsr(mode);
}

void emu_run_resident(uint32_t count, uint32_t threads, size_t shared_bytes, emu_body_fn *body,
                      void *ctx) {
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    begin_run(dim3(count), dim3(threads), shared_bytes, count, body, ctx);
    is_resident = true;
    run_resident();
    for (uint32_t i = 0; i < count; i++) free(blocks[i].dynamic_shared);
    _mm_setcsr(mode);
}
