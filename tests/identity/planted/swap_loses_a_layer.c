/* Rule broken: all layers of a block are swapped. Here the last layer of its first tile stays
 * behind.
 * wrap: cpu_program_create cpu_program_submit */
#include "kernels/cpu/kv_tiles.h"
#include "unit/kernels/cpu/programs.h"

enum status __real_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);
enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err);

/* The slot keeps nothing of that layer. */
static void lose_layer(const struct kv_space *space, uint32_t slot) {
    struct kv_tiles tiles = kv_tiles_of(space);
    size_t layer = kv_layer_bytes(&tiles);
    memset(space->spill + slot * space->block_bytes + (tiles.layers - 1) * layer, 0, layer);
}

enum status __wrap_cpu_program_submit(void *self, struct device_program *p, const struct step *step,
                                      struct err *err) {
    const struct known_program *known = program_find(p);
    enum status st = __real_cpu_program_submit(self, p, step, err);
    for (uint32_t i = 0; i < step->move_count; i++)
        if (step->moves[i].kind == KV_MOVE_OUT)
            lose_layer(&known->kv[step->moves[i].group], step->moves[i].to);
    return st;
}
