/* server/handlers.h - the functions that answer the routes. Each ends its request, now or later. */
#ifndef SERVER_HANDLERS_H
#define SERVER_HANDLERS_H

struct http_request;

/* ---- text_request.c ---- */
void handle_text(struct http_request *req); /* chat, completions, responses, messages, generate */

/* ---- sink_poll.c ---- */
void handle_generation_get(struct http_request *req);
void handle_generation_delete(struct http_request *req);

/* ---- files.c, file_upload.c, file_content.c ---- */
void handle_file_upload(struct http_request *req);
void handle_files(struct http_request *req);
void handle_file(struct http_request *req);
void handle_file_delete(struct http_request *req);
void handle_file_content(struct http_request *req);
void handle_message_batch_results(struct http_request *req);

/* ---- batch_create.c, batch_info.c, message_batch_create.c ---- */
void handle_batch_create(struct http_request *req);
void handle_batches(struct http_request *req);
void handle_batch(struct http_request *req);
void handle_batch_cancel(struct http_request *req);
void handle_message_batch_create(struct http_request *req);
void handle_message_batches(struct http_request *req);
void handle_message_batch(struct http_request *req);
void handle_message_batch_cancel(struct http_request *req);
void handle_message_batch_delete(struct http_request *req);

/* ---- stored_paths.c ---- */
void handle_response_get(struct http_request *req);
void handle_response_delete(struct http_request *req);
void handle_response_cancel(struct http_request *req);
void handle_response_items(struct http_request *req);
void handle_chats(struct http_request *req);
void handle_chat_get(struct http_request *req);
void handle_chat_messages(struct http_request *req);
void handle_chat_update(struct http_request *req);
void handle_chat_delete(struct http_request *req);

/* ---- conversations.c ---- */
void handle_conversation_create(struct http_request *req);
void handle_conversation_get(struct http_request *req);
void handle_conversation_items(struct http_request *req);
void handle_conversation_item(struct http_request *req);
void handle_conversation_item_delete(struct http_request *req);
void handle_conversation_update(struct http_request *req);
void handle_conversation_add(struct http_request *req);
void handle_conversation_delete(struct http_request *req);

/* ---- ws_client.c ---- */
void handle_stream(struct http_request *req);

/* ---- embeddings.c ---- */
void handle_embeddings(struct http_request *req);
void handle_ollama_embed(struct http_request *req);
void handle_ollama_embedding(struct http_request *req);

/* ---- tokenize.c ---- */
void handle_tokenize(struct http_request *req);
void handle_detokenize(struct http_request *req);
void handle_template(struct http_request *req);
void handle_count_tokens(struct http_request *req);

/* ---- service_info.c ---- */
void handle_models(struct http_request *req);
void handle_model(struct http_request *req);
void handle_live(struct http_request *req);
void handle_ready(struct http_request *req);
void handle_health(struct http_request *req);
void handle_metrics(struct http_request *req);
void handle_version(struct http_request *req);
void handle_openapi(struct http_request *req);

/* ---- page.c ---- */
void handle_page(struct http_request *req);
void handle_page_file(struct http_request *req);

/* ---- engine_paths.c ---- */
void handle_engine_steps(struct http_request *req);

/* ---- engine_policy.c ---- */
void handle_engine_policy(struct http_request *req);

/* ---- engine_state.c ---- */
void handle_engine_state(struct http_request *req);

/* ---- engine_whatif.c ---- */
void handle_engine_whatif(struct http_request *req);

/* ---- ollama.c ---- */
void handle_ollama_tags(struct http_request *req);
void handle_ollama_show(struct http_request *req);
void handle_ollama_version(struct http_request *req);
void handle_ollama_ps(struct http_request *req);

#endif
