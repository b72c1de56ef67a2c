/* net/bucket.c - counting what a peer may not do too often; see net/http_int.h. */
#include "net/http_int.h"

bool bucket_add(struct bucket *t, int64_t now_ms, uint32_t per_s, uint32_t burst) {
    const int64_t thousandths = (now_ms - t->at_ms) * per_s + t->leaked_thousandths;
    const int64_t leaked = thousandths / 1000;
    t->count -= leaked < t->count ? (uint32_t)leaked : t->count;
    t->leaked_thousandths = t->count ? (uint32_t)(thousandths % 1000) : 0;
    t->at_ms = now_ms;
    return ++t->count > burst;
}

void bucket_remove(struct bucket *t) {
    if (t->count) t->count--;
}
