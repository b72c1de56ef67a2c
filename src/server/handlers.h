/* server/handlers.h - whoever answers a route. Each ends its visit, at once or later. */
#ifndef SERVER_HANDLERS_H
#define SERVER_HANDLERS_H

struct visit;

/* ---- text.c ---- */
void handle_text(struct visit *v); /* chat, completions, responses, messages, generate */

/* ---- sink_poll.c ---- */
void handle_ride_get(struct visit *v);
void handle_ride_delete(struct visit *v);

/* ---- ws_client.c ---- */
void handle_stream(struct visit *v);

/* ---- embed.c ---- */
void handle_embeddings(struct visit *v);
void handle_ollama_embed(struct visit *v);
void handle_ollama_embedding(struct visit *v);

/* ---- tokens.c ---- */
void handle_tokenize(struct visit *v);
void handle_detokenize(struct visit *v);
void handle_template(struct visit *v);
void handle_count_tokens(struct visit *v);

/* ---- info.c ---- */
void handle_models(struct visit *v);
void handle_model(struct visit *v);
void handle_live(struct visit *v);
void handle_ready(struct visit *v);
void handle_health(struct visit *v);
void handle_metrics(struct visit *v);
void handle_version(struct visit *v);
void handle_openapi(struct visit *v);
void handle_page(struct visit *v);

/* ---- ollama.c ---- */
void handle_ollama_tags(struct visit *v);
void handle_ollama_show(struct visit *v);
void handle_ollama_version(struct visit *v);
void handle_ollama_ps(struct visit *v);

#endif
