/* api/openapi.c - see api/openapi.h. The generated parts: request schemas and the frame. */
#include "api/openapi.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/str.h"

enum { PATH_BYTES = 160, DEPTH_MAX = 8 };

static const struct {
    uint32_t endpoint;
    const char *schema;
} bodies[] = {
    {EP_CHAT, "ChatRequest"},
    {EP_COMPLETIONS, "CompletionRequest"},
    {EP_RESPONSES, "ResponseRequest"},
    {EP_MESSAGES, "MessageRequest"},
    {EP_COUNT_TOKENS, "TokenCountRequest"},
    {EP_OLLAMA_CHAT, "OllamaChatRequest"},
    {EP_OLLAMA_GENERATE, "OllamaGenerateRequest"},
    {EP_EMBEDDINGS, "EmbeddingRequest"},
    {EP_TOKENIZE, "TokenizeRequest"},
    {EP_DETOKENIZE, "DetokenizeRequest"},
    {EP_TEMPLATE, "TemplateRequest"},
    {EP_OLLAMA_SHOW, "OllamaShowRequest"},
    {EP_OLLAMA_EMBED, "OllamaEmbedRequest"},
    {EP_ENGINE_POLICY, "EnginePolicyRequest"},
    {EP_ENGINE_WHATIF, "WhatIfRequest"},
};
enum { BODY_COUNT = sizeof(bodies) / sizeof(bodies[0]) };

static const char *body_schema(uint32_t endpoint) {
    uint32_t i = 0;
    while (bodies[i].endpoint != endpoint) {
        i++;
        CHECK(i < BODY_COUNT);
    }
    return bodies[i].schema;
}

/* JSON that is written with ' in place of ". */
static void put_json(struct buf *out, const char *json) {
    for (; *json; json++) buf_put_char(out, *json == '\'' ? '"' : *json);
}

static void put_key(struct buf *out, const char *name) {
    buf_put_json_string(out, str_of(name));
    buf_put_char(out, ':');
}

static void put_number(struct buf *out, const char *name, double value) {
    buf_printf(out, ",\"%s\":%.17g", name, value);
}

/* ---- fields ---- */

static bool has_limits(const struct api_field *f) { return f->min != 0.0 || f->max != 0.0; }

/* Whether `path` is a direct member of `parent`, after a "." or "[]"; its own name follows that. */
static const char *child_name(const char *path, const char *parent, const char *joint) {
    size_t len = strlen(parent), joint_len = strlen(joint);
    if (strncmp(path, parent, len) != 0 || strncmp(path + len, joint, joint_len) != 0) return NULL;
    const char *name = path + len + joint_len;
    return strpbrk(name, ".[") ? NULL : name;
}

static bool has_children(uint32_t endpoint, const char *parent, const char *joint) {
    for (uint32_t i = 0; i < api_field_count; i++)
        if ((api_fields[i].endpoints & endpoint) && child_name(api_fields[i].path, parent, joint))
            return true;
    return false;
}

static void put_words(struct buf *out, const struct api_field *f) {
    buf_put_text(out, ",\"enum\":[");
    struct str rest = str_of(f->words);
    for (bool first = true; rest.len > 0; first = false) {
        const char *blank = memchr(rest.ptr, ' ', rest.len);
        size_t len = blank ? (size_t)(blank - rest.ptr) : rest.len;
        if (!first) buf_put_char(out, ',');
        buf_put_json_string(out, str_take(rest, len));
        rest = str_skip(rest, blank ? len + 1 : len);
    }
    buf_put_char(out, ']');
}

/* What a list holds, where the table says it only by how it is stored. */
static const char *items_of(const struct api_field *f) {
    if (f->store == STORE_STOPS) return "{'type':'string','minLength':1,'maxLength':256}";
    if (f->store == STORE_IDS || strcmp(f->path, "tokens") == 0)
        return "{'type':'integer','minimum':0,'maximum':2147483647}";
    bool is_text = strcmp(f->path, "prompt") == 0 || strcmp(f->path, "input") == 0;
    if (is_text && (f->endpoints & (EP_COMPLETIONS | EP_EMBEDDINGS)))
        return "{'anyOf':[{'type':'string'},{'type':'integer'},"
               "{'type':'array','items':{'type':'integer'}}]}";
    if (is_text && (f->endpoints & EP_RESPONSES)) return "{'type':'object'}";
    if (is_text && (f->endpoints & EP_OLLAMA_EMBED)) return "{'type':'string'}";
    return "{}";
}

static void put_object(struct buf *out, uint32_t endpoint, const char *parent, uint32_t depth);
static void put_field(struct buf *out, uint32_t endpoint, const struct api_field *f,
                      uint32_t depth);

static void put_list(struct buf *out, uint32_t endpoint, const struct api_field *f,
                     uint32_t depth) {
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s[]", f->path);
    const struct api_field *item = api_field_find((enum api_endpoint)endpoint, path);
    buf_put_text(out, ",\"items\":");
    if (item)
        put_field(out, endpoint, item, depth + 1);
    else
        put_json(out, items_of(f));
    if (!has_limits(f)) return;
    if (f->min > 0.0) put_number(out, "minItems", f->min);
    put_number(out, "maxItems", f->max);
}

/* The schema of one kind of value that the field may have. */
static void put_kind(struct buf *out, uint32_t endpoint, const struct api_field *f,
                     enum field_kind kind, uint32_t depth) {
    bool is_number = kind == FIELD_INT || kind == FIELD_REAL;
    bool counts_text = !(f->kinds & FIELD_LIST); /* otherwise the limits are the list's */
    const char *names[] = {"boolean", "integer", "number", "string", "array", "object"};
    buf_printf(out, "{\"type\":\"%s\"", names[__builtin_ctz(kind)]);
    if (is_number && has_limits(f)) {
        put_number(out, "minimum", f->min);
        put_number(out, "maximum", f->max);
    }
    if (kind == FIELD_TEXT && has_limits(f) && counts_text) {
        if (f->min > 0.0) put_number(out, "minLength", f->min);
        put_number(out, "maxLength", f->max);
    }
    if (kind == FIELD_TEXT && f->words) put_words(out, f);
    if (kind == FIELD_LIST) put_list(out, endpoint, f, depth);
    if (kind == FIELD_MAP) {
        if (has_limits(f)) put_number(out, "maxProperties", f->max);
        if (f->store == STORE_METADATA)
            put_json(out, ",'propertyNames':{'maxLength':64},"
                          "'additionalProperties':{'type':'string','maxLength':512}");
        if (has_children(endpoint, f->path, ".")) put_object(out, endpoint, f->path, depth + 1);
    }
    buf_put_char(out, '}');
}

static void put_notes(struct buf *out, const struct api_field *f) {
    const char *lead = f->use == FIELD_REFUSED   ? "Refused: "
                       : f->use == FIELD_IGNORED ? "Without effect: "
                                                 : "";
    char text[512];
    snprintf(text, sizeof(text), "%s%s", lead, f->help);
    put_key(out, "description");
    buf_put_json_string(out, str_of(text));
    bool has_default = f->fallback && f->use != FIELD_REFUSED;
    if (has_default) buf_printf(out, ",\"default\":%s", f->fallback);
}

/* null counts as not given, so everything that need not be there may be null. */
static void put_field(struct buf *out, uint32_t endpoint, const struct api_field *f,
                      uint32_t depth) {
    CHECK(depth < DEPTH_MAX);
    bool is_item = str_ends(str_of(f->path), STR("[]"));
    bool or_null = !f->is_required && !is_item;
    buf_put_char(out, '{');
    put_notes(out, f);
    if (f->use == FIELD_REFUSED && f->fallback) {
        buf_printf(out, ",\"enum\":[null,%s]", f->fallback); /* the values without effect */
    } else if (f->use == FIELD_REFUSED) {
        buf_put_text(out, ",\"type\":\"null\"");
    } else if (f->kinds != FIELD_ANY) {
        buf_put_text(out, ",\"anyOf\":[");
        /* A whole number is a number. */
        uint32_t kinds = f->kinds & FIELD_REAL ? f->kinds & ~(uint32_t)FIELD_INT : f->kinds;
        for (uint32_t kind = 1, count = 0; kind <= FIELD_MAP; kind <<= 1) {
            if (!(kinds & kind)) continue;
            if (count++) buf_put_char(out, ',');
            put_kind(out, endpoint, f, (enum field_kind)kind, depth);
        }
        buf_put_text(out, or_null ? ",{\"type\":\"null\"}]" : "]");
    }
    buf_put_char(out, '}');
}

/* "properties" and "required" for the direct members of `parent` ("": the body itself). */
static void put_object(struct buf *out, uint32_t endpoint, const char *parent, uint32_t depth) {
    const char *joint = *parent ? "." : "";
    uint32_t count = 0, required = 0;
    buf_put_text(out, ",\"properties\":{");
    for (uint32_t i = 0; i < api_field_count; i++) {
        const struct api_field *f = &api_fields[i];
        const char *name = child_name(f->path, parent, joint);
        if (!(f->endpoints & endpoint) || !name) continue;
        if (count++) buf_put_char(out, ',');
        put_key(out, name);
        put_field(out, endpoint, f, depth);
    }
    buf_put_char(out, '}');
    for (uint32_t i = 0; i < api_field_count; i++) {
        const struct api_field *f = &api_fields[i];
        const char *name = child_name(f->path, parent, joint);
        if (!(f->endpoints & endpoint) || !name || !f->is_required) continue;
        buf_put_text(out, required++ ? "," : ",\"required\":[");
        buf_put_json_string(out, str_of(name));
    }
    if (required) buf_put_char(out, ']');
}

static void put_components(struct buf *out) {
    buf_put_text(out, "\"components\":{\"schemas\":{");
    for (uint32_t i = 0; i < BODY_COUNT; i++) {
        put_key(out, bodies[i].schema);
        buf_put_text(out, "{\"type\":\"object\"");
        put_object(out, bodies[i].endpoint, "", 0);
        buf_put_text(out, "},");
    }
    for (uint32_t i = 0; i < openapi_schema_count; i++) {
        if (i) buf_put_char(out, ',');
        put_key(out, openapi_schemas[i].name);
        put_json(out, openapi_schemas[i].json);
    }
    put_json(out, "},'securitySchemes':{"
                  "'bearer':{'type':'http','scheme':'bearer'},"
                  "'apiKey':{'type':'apiKey','in':'header','name':'x-api-key'}}}");
}

/* ---- paths ---- */

static const struct {
    enum openapi_params param;
    const char *json;
} params[] = {
    {PARAM_ID,
     "{'name':'id','in':'path','required':true,'schema':{'type':'string','minLength':1}}"},
    {PARAM_POLL, "{'name':'after','in':'query','description':'The number of the last event that is "
                 "known.','schema':{'type':'integer','minimum':0,'maximum':4294967295}},"
                 "{'name':'wait_ms','in':'query','description':'How long to wait for a new event.',"
                 "'schema':{'type':'integer','minimum':0,'maximum':60000}}"},
    {PARAM_ASK, "{'name':'x-request-id','in':'header','description':'The id of the request; "
                "generated if absent.','schema':{'type':'string'}},"
                "{'name':'prefer','in':'header','description':'respond-async: answer 202 at once "
                "and let the client poll /v1/requests.','schema':{'type':'string'}},"
                "{'name':'x-jitney-priority','in':'header','schema':{'type':'integer'}},"
                "{'name':'x-jitney-ttft-ms','in':'header','schema':{'type':'number'}},"
                "{'name':'x-jitney-tpot-ms','in':'header','schema':{'type':'number'}},"
                "{'name':'x-jitney-deadline-ms','in':'header','schema':{'type':'number'}},"
                "{'name':'x-jitney-smooth-ms','in':'header','schema':{'type':'number'}},"
                "{'name':'x-jitney-keep','in':'header','description':'Continue without a client, "
                "which may come back.','schema':{'enum':['true','false']}}"},
    {PARAM_RESUME, "{'name':'last-event-id','in':'header','description':'Continue after this event "
                   "of a broken stream.','schema':{'type':'string'}}"},
    {PARAM_GENERATE, "{'name':'generate','in':'query','description':'Prove that the engine makes "
                     "a token.','schema':{'type':'integer','minimum':0,'maximum':1}}"},
    {PARAM_MODEL, "{'name':'model','in':'query','description':'The name of the model; default: the "
                  "first that writes text.','schema':{'type':'string'}}"},
    {PARAM_FROM, "{'name':'from','in':'query','description':'The number of the first step to send; "
                 "0: the oldest that is kept; default: the next one.',"
                 "'schema':{'type':'integer','minimum':0}}"},
    {PARAM_ITEM,
     "{'name':'item_id','in':'path','required':true,'schema':{'type':'string','minLength':1}}"},
    {PARAM_PAGE, "{'name':'after','in':'query','description':'The id of the object before the "
                 "page.','schema':{'type':'string'}},"
                 "{'name':'limit','in':'query','description':'The most objects of the page.',"
                 "'schema':{'type':'integer','minimum':1,'maximum':10000}},"
                 "{'name':'order','in':'query','description':'By the time of creation.',"
                 "'schema':{'enum':['asc','desc']}}"},
    {PARAM_BATCHES, "{'name':'after_id','in':'query','description':'The id of the object before "
                    "the page.','schema':{'type':'string'}},"
                    "{'name':'before_id','in':'query','description':'The id of the object after "
                    "the page.','schema':{'type':'string'}},"
                    "{'name':'limit','in':'query','description':'The most objects of the page.',"
                    "'schema':{'type':'integer','minimum':1,'maximum':1000}}"},
    {PARAM_PURPOSE, "{'name':'purpose','in':'query','description':'Only files of this purpose.',"
                    "'schema':{'type':'string'}}"},
    {PARAM_REPLAY, "{'name':'stream','in':'query','description':'Send the events of the answer, "
                   "also those to come.','schema':{'type':'boolean'}},"
                   "{'name':'starting_after','in':'query','description':'The sequence_number of "
                   "the last event that is known.','schema':{'type':'integer','minimum':0}}"},
};

static void put_params(struct buf *out, uint32_t wanted) {
    bool any = false;
    for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++) {
        if (!(wanted & params[i].param)) continue;
        buf_put_text(out, any ? "," : ",\"parameters\":[");
        put_json(out, params[i].json);
        any = true;
    }
    if (any) buf_put_char(out, ']');
}

static void put_ref(struct buf *out, const char *schema) {
    buf_printf(out, "{\"$ref\":\"#/components/schemas/%s\"}", schema);
}

static void put_response(struct buf *out, const char *status, const char *about,
                         const char *schema) {
    buf_printf(out, "\"%s\":{\"description\":\"%s\",\"content\":{\"application/json\":{\"schema\":",
               status, about);
    put_ref(out, schema);
    buf_put_text(out, "}}}");
}

/* Answers that are not JSON. */
static void put_media(struct buf *out, const struct openapi_operation *o) {
    struct str rest = str_of(o->media);
    while (rest.len > 0) {
        const char *blank = memchr(rest.ptr, ' ', rest.len);
        size_t len = blank ? (size_t)(blank - rest.ptr) : rest.len;
        buf_put_json_string(out, str_take(rest, len));
        put_json(out, ":{'schema':{'type':'string'}");
        if (o->events) {
            put_json(out, ",'x-event-schema':");
            put_ref(out, o->events);
        }
        rest = str_skip(rest, blank ? len + 1 : len);
        buf_put_text(out, rest.len > 0 ? "}," : "}");
    }
}

static void put_success(struct buf *out, const struct openapi_operation *o) {
    if (o->is_upgrade) {
        put_json(out, "'101':{'description':'Switched to a WebSocket.'}");
        return;
    }
    put_json(out, "'200':{'description':'Success.','content':{");
    if (o->answer) {
        put_json(out, "'application/json':{'schema':");
        put_ref(out, o->answer);
        buf_put_char(out, '}');
    }
    if (o->media && o->answer) buf_put_char(out, ',');
    put_media(out, o);
    buf_put_text(out, "}}");
}

static void put_operation(struct buf *out, const struct openapi_operation *o) {
    put_key(out, o->method);
    buf_printf(out, "{\"operationId\":\"%s\",\"summary\":", o->id);
    buf_put_json_string(out, str_of(o->summary));
    put_json(out, o->is_open ? ",'security':[]" : "");
    put_params(out, o->params);
    if (o->body || o->sent) {
        put_json(out, o->may_be_empty ? ",'requestBody':{'content':{"
                                      : ",'requestBody':{'required':true,'content':{");
        put_json(out, o->is_form ? "'multipart/form-data':" : "'application/json':");
        put_json(out, "{'schema':");
        put_ref(out, o->body ? body_schema(o->body) : o->sent);
        buf_put_text(out, "}}}");
    }
    buf_put_text(out, ",\"responses\":{");
    put_success(out, o);
    buf_put_char(out, ',');
    if (o->accepted) {
        put_response(out, "202", "Accepted; poll /v1/requests.", o->accepted);
        buf_put_char(out, ',');
    }
    if (o->may_be_unready) {
        put_response(out, "503", "Not ready.", o->answer);
        buf_put_char(out, ',');
    }
    put_response(out, "4XX", "Refused.", o->fault);
    buf_put_char(out, ',');
    put_response(out, "5XX", "Not possible at the moment.", o->fault);
    buf_put_text(out, "}}");
}

void openapi_put(struct buf *out) {
    put_json(out, "{'openapi':'3.1.0','info':{'title':'jitney','version':'" JITNEY_VERSION "',"
                  "'description':'An LLM inference server. null counts as not given, and fields "
                  "that are not listed are ignored.','license':{'name':'Apache-2.0',"
                  "'identifier':'Apache-2.0'}},"
                  "'servers':[{'url':'/'}],'security':[{},{'bearer':[]},{'apiKey':[]}],'paths':{");
    const char *path = "";
    for (uint32_t i = 0; i < openapi_operation_count; i++) {
        const struct openapi_operation *o = &openapi_operations[i];
        bool is_new = strcmp(o->path, path) != 0;
        if (i) buf_put_text(out, is_new ? "}," : ",");
        if (is_new) {
            put_key(out, o->path);
            buf_put_char(out, '{');
        }
        put_operation(out, o);
        path = o->path;
    }
    buf_put_text(out, "}},");
    put_components(out);
    buf_put_char(out, '}');
}
