/* cli/chat_local.h - `jitney chat` without --url: a conversation with a model of this process.
 *
 *   messages, tools -> chat template -> tokens -> engine -> tokens -> thoughts, text, calls
 *
 * It reads requests and answers as the server does (api/codec.h, api/event_writer.h), so the same
 * conversation gives the same prompt, and the same tokens give the same answer.
 *
 * Lifetime: open, generate as often as needed, close. Thread: the main thread.
 * Memory: the prompt and the answer while it is generated.
 */
#ifndef CLI_CHAT_LOCAL_H
#define CLI_CHAT_LOCAL_H

#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct chat_answer;
struct dialog;
struct interrupt;
struct local; /* opaque */
struct request_usage;
struct sample_params;
struct service;

struct local_options {
    const struct service *service; /* all of them are borrowed */
    const struct dialog *dialog;   /* opened on the model's tokenizer */
    struct interrupt *interrupt;
    const char *model; /* its name, for errors */
    struct str tools;  /* a JSON list, as requests of OpenAI's API have it; empty: none */
};

/* ST_BAD: there are tools, and no form reads the calls that the model writes. */
enum status local_open(const struct local_options *options, struct local **out, struct err *err);
void local_close(struct local *l); /* NULL is fine */

/* Generate the next message of the assistant. `max_tokens` 0: as many as fit. After Ctrl-C it is
 * the answer so far, with FINISH_CANCELLED. */
enum status local_generate(struct local *l, const struct sample_params *sample, uint32_t max_tokens,
                           struct chat_answer *answer, struct request_usage *usage,
                           struct err *err);

#endif
