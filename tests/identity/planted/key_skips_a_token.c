/* Rule broken: a block is found again only by exactly its tokens. Here the key leaves out the
 * last one, so that two prompts which differ in it share the block.
 * wrap: kv_key_next */
#include "kv/prefix.h"

struct kv_key __real_kv_key_next(struct siphash_key secret, struct kv_key before,
                                 const int32_t *tokens, uint32_t count, uint8_t *scratch);
struct kv_key __wrap_kv_key_next(struct siphash_key secret, struct kv_key before,
                                 const int32_t *tokens, uint32_t count, uint8_t *scratch);

struct kv_key __wrap_kv_key_next(struct siphash_key secret, struct kv_key before,
                                 const int32_t *tokens, uint32_t count, uint8_t *scratch) {
    return __real_kv_key_next(secret, before, tokens, count > 1 ? count - 1 : count, scratch);
}
