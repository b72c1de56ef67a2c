/* examples/chat.c - several questions to one model, answered at the same time.
 *
 *     cc chat.c -o chat $(pkg-config --cflags --libs jitney)
 *     ./chat smollm2 "Name three primary colors." "Why is the sky blue?"
 *
 * All questions share the steps of the model; each answer is printed when it is complete. A
 * question gets the same answer whichever other questions run at the same time.
 */
#include <jitney.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    const char *question;
    char *text;
    size_t bytes;
};

static int append(struct answer *a, const char *text, size_t bytes) {
    char *grown = realloc(a->text, a->bytes + bytes + 1);
    if (!grown) return -1;
    memcpy(grown + a->bytes, text, bytes);
    a->text = grown;
    a->bytes += bytes;
    a->text[a->bytes] = 0;
    return 0;
}

static int ask(struct jitney *j, struct answer *a) {
    char why[JITNEY_ERROR_BYTES];
    struct jitney_request req = jitney_request_default();
    req.chat = a->question;
    req.max_tokens = 64;
    req.temperature = 0; /* always the most likely token */
    req.user = a;        /* every event of this request has it */
    if (jitney_submit(j, &req, NULL, why) == JITNEY_OK) return 0;
    fprintf(stderr, "chat: %s\n", why);
    return -1;
}

/* Returns when all requests have finished. */
static int show_answers(struct jitney *j) {
    int failed = 0;
    struct jitney_event ev = jitney_event_default();
    while (jitney_next(j, &ev, -1) == JITNEY_OK) {
        struct answer *a = ev.user;
        if (append(a, ev.text, ev.text_bytes) != 0) failed = 1;
        if (ev.error) fprintf(stderr, "chat: %s\n", ev.error);
        if (ev.finish == JITNEY_MORE) continue;
        printf("> %s\n%s\n(%u tokens)\n\n", a->question, a->text, ev.completion_tokens);
        if (ev.finish != JITNEY_STOP && ev.finish != JITNEY_LENGTH) failed = 1;
    }
    jitney_event_clear(&ev);
    return failed;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: chat MODEL QUESTION...\n");
        return 64;
    }
    char why[JITNEY_ERROR_BYTES];
    struct jitney *j;
    if (jitney_open(argv[1], NULL, &j, why) != JITNEY_OK) {
        fprintf(stderr, "chat: %s\n", why);
        return 1;
    }
    size_t count = (size_t)argc - 2;
    struct answer *answers = calloc(count, sizeof(*answers));
    int failed = answers == NULL;
    for (size_t i = 0; i < count && !failed; i++) {
        answers[i].question = argv[i + 2];
        failed = ask(j, &answers[i]) != 0;
    }
    if (!failed) failed = show_answers(j);
    for (size_t i = 0; i < count && answers; i++) free(answers[i].text);
    free(answers);
    jitney_close(j);
    return failed;
}
