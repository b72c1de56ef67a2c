/* server/shortage.c - see server/shortage.h. */
#include "server/shortage.h"

#include "api/error.h"

enum { RETRY_MS = 1000 };

static const struct {
    const char *share_code, *share_text; /* 429 */
    const char *full_code, *full_text;   /* 503 */
    const char *purpose, *advice;        /* 413 */
} shortages[] = {
    [SHORTAGE_ANSWERS] = {"memory_share_full",
                          "the answers of this API key use up its share of the server's memory; "
                          "try again later",
                          "memory_full",
                          "the server's memory for answers is used up; try again later", "answers",
                          "ask for fewer tokens, choices or log-probabilities"},
    [SHORTAGE_EMBEDDINGS] = {"memory_share_full",
                             "the embeddings of this API key use up its share of the server's "
                             "memory; try again later",
                             "memory_full",
                             "the server's memory for embeddings is used up; try again later",
                             "embeddings", "send fewer inputs in a request"},
    [SHORTAGE_WORK] = {"work_share_full",
                       "requests of this API key that are being prepared use up its share of the "
                       "server; try again later",
                       "work_queue_full", "too many requests are being prepared; try again later",
                       "texts that are being prepared", "send a shorter text"},
};

enum status shortage_status(const struct budget *b, uint64_t bytes, uint64_t more) {
    if (bytes > share_most(b)) return ST_BAD;
    return b->used + more > b->max ? ST_UNAVAILABLE : ST_FULL;
}

void shortage_put(enum shortage what, enum status st, uint64_t bytes, uint64_t most,
                  struct api_error *e) {
    if (st == ST_BAD) {
        api_refuse(e, 413, NULL, "memory_share_exceeded",
                   "the request needs %llu bytes of the server's memory for %s; one client can "
                   "have %llu: %s, or start the server with a larger --memory-max",
                   (unsigned long long)bytes, shortages[what].purpose, (unsigned long long)most,
                   shortages[what].advice);
        return;
    }
    if (st == ST_FULL)
        api_refuse(e, 429, NULL, shortages[what].share_code, "%s", shortages[what].share_text);
    else if (st == ST_UNAVAILABLE)
        api_refuse(e, 503, NULL, shortages[what].full_code, "%s", shortages[what].full_text);
    else
        api_refuse(e, 503, NULL, "out_of_memory", "the server has no memory for this request");
    e->retry_after_ms = RETRY_MS;
}
