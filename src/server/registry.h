/* server/registry.h - the served models by name: loading, state, engines and embedders.
 *
 *     WAITING -> LOADING -> READY
 *                   |         | its file was cut under it
 *                   +---------+---> FAILED        (enum load_state)
 *
 * A loader thread opens the models one after the other and posts each result to the loop, so that
 * everything here is read and changed by the I/O thread alone, except the progress of the model
 * that is being loaded. A model that writes text has an engine, started here; every model may have
 * an embedder.
 *
 * Lifetime: create, start, (loop), stop, destroy. Thread: the I/O thread.
 */
#ifndef SERVER_REGISTRY_H
#define SERVER_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "api/model_forms.h"
#include "base/status.h"
#include "base/str.h"
#include "hub/model_cache.h"
#include "engine/service.h"
#include "server/fingerprint.h"

struct api_error;
struct chat_prompt;
struct embedder;
struct registry; /* opaque */
struct settings;
struct tokenizer;
struct uv_async_s;
struct uv_loop_s;

enum load_state { LOAD_WAITING, LOAD_LOADING, LOAD_READY, LOAD_FAILED };
const char *load_state_name(enum load_state s);

enum { SERVED_MAX = 64, SERVED_NAME_BYTES = 256, START_PARTS_MAX = 8 };

/* A model as the I/O thread sees it. Everything below `state` is valid once it is READY. */
struct served_model {
    char name[SERVED_NAME_BYTES]; /* the name that clients use */
    char stem[SERVED_NAME_BYTES]; /* its file's name, which clients may use, too */
    char operand[MODEL_PATH_BYTES];
    enum load_state state;
    struct err failure; /* FAILED */
    enum status load_status;

    char path[MODEL_PATH_BYTES];
    int64_t created_s;
    uint64_t file_bytes;
    bool is_encoder, is_sim;
    const struct tokenizer *tokenizer;
    struct chat_prompt *chat; /* NULL: it has no template */
    struct err chat_missing;  /* why not */
    struct model_forms forms; /* how it writes tool calls and thoughts */
    uint32_t ctx_tokens;      /* of the longest sequence; of an encoder: the longest text */
    uint32_t piece_bytes_max; /* of its tokenizer's longest piece; 0: a token may be longer */
    char fingerprint[FINGERPRINT_BYTES];
    struct engine *engine;     /* NULL: an encoder */
    struct embedder *embedder; /* NULL: it gives no embeddings */
    struct grammars *grammars; /* NULL: its answers cannot have a grammar */
    bool forces_text;          /* of answers that have one */
    const struct loaded_model *loaded;
    struct knobs knobs; /* of the engine, at its start */
    struct start_part {
        const char *name;
        int64_t us;
    } start_parts[START_PARTS_MAX]; /* how long each part of the start took */
    uint32_t start_part_count;
    struct service_memory memory;
    uint32_t metrics_idx;  /* its number in the metrics */
    uint32_t live_choices; /* of its generations, that the engine has not ended */
    bool has_submitted;    /* to its engine, which must be woken */

    struct model_parts *parts; /* private to registry.c */
};

/* Called by the loop, with the model in `data` of a handle; on_stall by the watchdog's thread. */
struct registry_hooks {
    void (*on_output)(struct uv_async_s *handle);          /* its engine has tokens */
    void (*on_embedded)(struct uv_async_s *handle);        /* its embedder has vectors */
    void (*on_changed)(void *ctx, struct served_model *m); /* its state; NULL: all is loaded */
    void (*on_stall)(void *ctx, int64_t stalled_us);
    void *ctx;
};

/* The models of the settings, all WAITING. ST_BAD: a duplicate name, or an invalid runner, policy
 * or knob. The settings outlive it. */
enum status registry_create(struct uv_loop_s *loop, const struct settings *settings,
                            const struct registry_hooks *hooks, struct registry **out,
                            struct err *err);
/* Begin to load. */
enum status registry_start(struct registry *r, struct err *err);

/* Stop loading and stop the engines. False: a model is being opened, and the loader thread cannot
 * be joined yet; on_changed is called when it can. */
bool registry_stop(struct registry *r);
/* After registry_stop was true; the handles close with the loop. */
void registry_close(struct registry *r);
void registry_destroy(struct registry *r); /* after the loop has run dry; NULL is fine */

uint32_t registry_count(const struct registry *r);
struct served_model *registry_at(const struct registry *r, uint32_t i);
/* By name or by its file's name; ":latest" at the end is ignored. NULL: unknown. */
struct served_model *registry_find(const struct registry *r, struct str name);
/* The model that a request names (`name.ptr` NULL: the default), if it is READY. ST_BAD: `e` says
 * that it is unknown, still loading or failed. */
enum status registry_find_ready(struct registry *r, struct str name, struct served_model **out,
                                struct api_error *e);
/* The same for embeddings: a model with an embedder. Without a name it is the first encoder; if
 * none is served, the model of registry_default. ST_BAD also if the model gives no embeddings. */
enum status registry_find_embedder(struct registry *r, struct str name, struct served_model **out,
                                   struct api_error *e);
/* The model of a request that names none: the first ready one that writes text, else the first. */
struct served_model *registry_default(const struct registry *r);

/* Set the state of READY models whose files have become unreadable to FAILED; calls on_changed for
 * each. Their engines go on, to fail the requests that they have. */
void registry_check_files(struct registry *r);

bool registry_is_loaded(const struct registry *r); /* all are READY or FAILED */
bool registry_has_ready(const struct registry *r);
/* The model that is being loaded (NULL: none), what is being done, and the share that is done. */
struct load_progress {
    const struct served_model *model;
    const char *stage;
    double share;
};
struct load_progress registry_progress(const struct registry *r);

#endif
