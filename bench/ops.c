/* bench/ops.c - how fast each op runs, beside what the same machine gives at most.
 *
 * Usage: ops [threads [isa [word]]] [--json]
 *
 * With a word, only the cases that have it in their name are timed. Every line is one op on random
 * data: the best and the median time of many runs, GB/s of weights or cache read (of scratch,
 * for ops that touch nothing else), Gop/s, and the share of the ceiling that binds it, measured
 * at the start (kernels/cpu/peaks.h). Products are timed many in a row, with weights of their own
 * that no cache holds together. Choosing tokens is measured by bench/sample.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "base/str.h"
#include "kernels/cpu/cpu.h"
#include "ops/rig.h"

enum { EXIT_USAGE = 2 };

static void print_head(const struct bench *b) {
    const struct peaks *p = &b->peaks;
    if (b->json)
        printf("{\"device\":\"%s\",\"threads\":%u,\"ceilings\":{\"memory_gbs\":%.3f,"
               "\"cache_gbs\":%.3f,\"int8_gops\":%.3f,\"f32_gops\":%.3f},\"cases\":[",
               b->dev.name, b->threads, p->read_gbs, p->cache_gbs, p->int8_gops, p->f32_gops);
    else
        printf("%s, %u threads; memory %.1f GB/s, caches %.1f GB/s, int8 %.1f Gop/s (%s), f32 %.1f "
               "Gop/s (%s)\n%-38s %11s %11s %8s %8s  %-6s %6s\n",
               b->dev.name, b->threads, p->read_gbs, p->cache_gbs, p->int8_gops, p->int8_name,
               p->f32_gops, p->f32_name, "op", "best us", "median us", "GB/s", "Gop/s", "bound",
               "share");
    fflush(stdout);
}

static bool refuse(const char *why) {
    fprintf(stderr, "ops: %s\nusage: ops [threads [isa [word]]] [--json]\n", why);
    return false;
}

static bool read_threads(const char *word, uint32_t *out) {
    uint64_t count = pool_default_threads();
    if (word && !str_to_u64(str_of(word), &count)) return false;
    *out = (uint32_t)count;
    return count >= 1 && count <= POOL_THREADS_MAX;
}

static bool read_args(struct bench *b, int argc, char **argv) {
    enum { WORDS = 3 };
    const char *words[WORDS] = {NULL, "auto", ""};
    int count = 0;
    struct err err = {{0}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            b->json = true;
        else if (argv[i][0] == '-' || count == WORDS)
            return refuse("takes three words at most, and --json");
        else
            words[count++] = argv[i];
    }
    b->isa = words[1];
    b->word = words[2];
    if (!read_threads(words[0], &b->threads)) return refuse("there is no such number of threads");
    return cpu_isa_check(b->isa, &err) == ST_OK || refuse(err.text);
}

int main(int argc, char **argv) {
    static struct bench b;
    struct err err = {{0}};
    if (!read_args(&b, argc, argv)) return EXIT_USAGE;
    bench_open(&b);
    must(b.dev.profiler->peaks(b.dev.self, &b.peaks, &err), &err);
    print_head(&b);
    bench_close(&b);
    bench_matmuls(&b);
    bench_experts(&b);
    bench_attentions(&b);
    bench_row_ops(&b);
    if (b.json) printf("]}\n");
    if (b.printed) return 0;
    fprintf(stderr, "ops: no case has \"%s\" in its name\n", b.word);
    return EXIT_USAGE;
}
