/* grammar/schema_ref.c - $ref: JSON pointers, anchors, and identifiers inside the document.
 *
 * Where the document has identifiers ($id, id), every map is assigned to the resource it belongs
 * to, since references are relative to it. Nothing outside the document is ever fetched.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "grammar/schema_int.h"

enum { URI_BYTES_MAX = 2048, WALK_DEPTH_MAX = 200 };

static const char *id_key(const struct schema *s) { return s->draft <= 4 ? "id" : "$id"; }

static struct str without_fragment(struct str uri) {
    const char *hash = uri.len ? memchr(uri.ptr, '#', uri.len) : NULL;
    return hash ? str_take(uri, (size_t)(hash - uri.ptr)) : uri;
}

static bool has_scheme(struct str uri) {
    for (size_t i = 0; i < uri.len; i++) {
        char c = uri.ptr[i];
        if (c == ':') return i > 0;
        if (c == '/' || c == '?' || c == '#') return false;
    }
    return false;
}

/* The reference `uri`, without its fragment, as seen from `base`. */
static void resolve_uri(struct str base, struct str uri, char *out, size_t bytes) {
    uri = without_fragment(uri);
    if (uri.len == 0 || has_scheme(uri)) {
        str_store(uri.len ? uri : base, out, bytes);
        return;
    }
    const char *scheme = NULL;
    for (size_t i = 0; i + 2 < base.len && !scheme; i++)
        if (memcmp(base.ptr + i, "://", 3) == 0) scheme = base.ptr + i + 3;
    size_t host = scheme ? (size_t)(scheme - base.ptr) : 0, keep = base.len;
    while (scheme && host < base.len && base.ptr[host] != '/') host++;
    if (uri.ptr[0] == '/') {
        keep = host;
    } else {
        while (keep > host && base.ptr[keep - 1] != '/') keep--;
    }
    const char *slash = scheme && keep == host && uri.ptr[0] != '/' ? "/" : "";
    snprintf(out, bytes, "%.*s%s%.*s", (int)keep, base.ptr, slash, (int)uri.len, uri.ptr);
}

static enum status add_resource(struct schema *s, const char *uri, const struct json *schema) {
    struct budget *b = &s->c->g->budget;
    if (!budget_grow(b, (void **)&s->resources, &s->resource_cap, s->resource_count + 1,
                     sizeof(*s->resources)))
        return b->status;
    char *copy = mem_dup(uri, strlen(uri));
    if (!copy) return b->status = ST_NOMEM;
    s->resources[s->resource_count++] = (struct resource){copy, schema};
    return ST_OK;
}

static bool is_identified(const struct schema *s, const struct json *v) {
    struct str id = json_str(json_get(v, id_key(s)));
    if (id.len == 0 || without_fragment(id).len == 0) return false;
    return !(json_get(v, "$ref") && s->draft <= 7);
}

/* Values of enum and const are no schemas. Recursion is bounded by the depth of the document. */
static enum status assign(struct schema *s, const struct json *v, uint32_t resource) {
    if (json_kind(v) == JS_LIST) {
        for (size_t i = 0; i < json_count(v); i++) TRY(assign(s, json_at(v, i), resource));
        return ST_OK;
    }
    if (json_kind(v) != JS_MAP) return ST_OK;
    if (is_identified(s, v) && v != s->doc) {
        char uri[URI_BYTES_MAX];
        resolve_uri(str_of(s->resources[resource].uri), json_str(json_get(v, id_key(s))), uri,
                    sizeof(uri));
        resource = s->resource_count;
        TRY(add_resource(s, uri, v));
    }
    TRY(map64_put(s->places, (uint64_t)(uintptr_t)v, resource + 1));
    for (struct json_iter i = json_iter_first(v); json_iter_ok(&i); json_iter_next(&i))
        if (!str_is(i.key, "enum") && !str_is(i.key, "const")) TRY(assign(s, i.value, resource));
    return ST_OK;
}

enum status refs_init(struct schema *s) {
    struct budget *b = &s->c->g->budget;
    struct str id = json_str(json_get(s->doc, id_key(s)));
    char uri[URI_BYTES_MAX];
    str_store(without_fragment(id), uri, sizeof(uri));
    TRY(add_resource(s, uri, s->doc));
    s->places = map64_create(256);
    enum status st = s->places ? assign(s, s->doc, 0) : ST_NOMEM;
    if (st != ST_OK && b->status == ST_OK) b->status = st;
    return st;
}

void refs_deinit(struct schema *s) {
    for (uint32_t i = 0; i < s->resource_count; i++) mem_free(s->resources[i].uri);
    mem_free(s->resources);
    s->c->g->budget.bytes -= s->resource_cap * sizeof(*s->resources);
    map64_destroy(s->places);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
    return -1;
}

/* One step of a pointer, unescaped: %XX, then ~1 and ~0. */
static struct str unescape(struct str part, char *out, size_t bytes) {
    size_t len = 0;
    for (size_t i = 0; i < part.len && len + 1 < bytes; i++) {
        char c = part.ptr[i];
        if (c == '%' && i + 2 < part.len && hex_digit(part.ptr[i + 1]) >= 0 &&
            hex_digit(part.ptr[i + 2]) >= 0) {
            c = (char)(hex_digit(part.ptr[i + 1]) * 16 + hex_digit(part.ptr[i + 2]));
            i += 2;
        } else if (c == '~' && i + 1 < part.len) {
            c = part.ptr[++i] == '1' ? '/' : '~';
        }
        out[len++] = c;
    }
    return (struct str){out, len};
}

static const struct json *member_named(const struct json *map, struct str name) {
    for (struct json_iter i = json_iter_first(map); json_iter_ok(&i); json_iter_next(&i))
        if (str_eq(i.key, name)) return i.value;
    return NULL;
}

static const struct json *follow_pointer(const struct json *v, struct str pointer) {
    char name[URI_BYTES_MAX];
    while (pointer.len && v) {
        pointer = str_skip(pointer, 1);
        const char *slash = pointer.len ? memchr(pointer.ptr, '/', pointer.len) : NULL;
        struct str part = slash ? str_take(pointer, (size_t)(slash - pointer.ptr)) : pointer;
        struct str plain = unescape(part, name, sizeof(name));
        uint64_t index = 0;
        if (json_kind(v) == JS_LIST)
            v = str_to_u64(plain, &index) ? json_at(v, index) : NULL;
        else
            v = member_named(v, plain);
        pointer = str_skip(pointer, part.len);
    }
    return v;
}

static bool is_anchor(const struct schema *s, const struct json *v, struct str name) {
    struct str id = json_str(json_get(v, id_key(s)));
    if (str_eq(json_str(json_get(v, "$anchor")), name)) return true;
    if (str_eq(json_str(json_get(v, "$dynamicAnchor")), name)) return true;
    return s->draft <= 7 && id.len == name.len + 1 && id.ptr[0] == '#' &&
           str_eq(str_skip(id, 1), name);
}

/* The schema with the anchor `name` in one resource. Recursion: the depth of the document. */
static const struct json *find_anchor(const struct schema *s, const struct json *v, struct str name,
                                      uint64_t resource) {
    uint64_t place = 0;
    if (json_kind(v) == JS_LIST) {
        for (size_t i = 0; i < json_count(v); i++) {
            const struct json *found = find_anchor(s, json_at(v, i), name, resource);
            if (found) return found;
        }
        return NULL;
    }
    if (json_kind(v) != JS_MAP) return NULL;
    if (!map64_find(s->places, (uint64_t)(uintptr_t)v, &place) || place != resource) return NULL;
    if (is_anchor(s, v, name)) return v;
    for (struct json_iter i = json_iter_first(v); json_iter_ok(&i); json_iter_next(&i)) {
        const struct json *found = find_anchor(s, i.value, name, resource);
        if (found) return found;
    }
    return NULL;
}

static uint32_t find_resource(const struct schema *s, const char *uri) {
    for (uint32_t i = 0; i < s->resource_count; i++)
        if (str_eq(str_of(s->resources[i].uri), str_of(uri))) return i;
    return UINT32_MAX;
}

enum status ref_resolve(struct schema *s, const struct json *schema, const char *keyword,
                        const struct json **out) {
    struct str ref = json_str(json_get(schema, keyword));
    uint64_t place = 1;
    char uri[URI_BYTES_MAX];
    if (json_kind(json_get(schema, keyword)) != JS_TEXT)
        return schema_refuse(s, schema, "%s: expected a text", keyword);
    map64_find(s->places, (uint64_t)(uintptr_t)schema, &place);
    uint32_t at = (uint32_t)place - 1;
    struct str fragment = str_skip(ref, without_fragment(ref).len + 1);
    if (without_fragment(ref).len) {
        resolve_uri(str_of(s->resources[at].uri), ref, uri, sizeof(uri));
        at = find_resource(s, uri);
    }
    *out = NULL;
    if (at != UINT32_MAX) {
        const struct json *root = s->resources[at].schema;
        *out = fragment.len && fragment.ptr[0] != '/' ? find_anchor(s, root, fragment, at + 1)
                                                      : follow_pointer(root, fragment);
    }
    if (*out) return ST_OK;
    return schema_refuse(s, schema, "%s \"%.*s\" is not in this document; others are not fetched",
                         keyword, STR_ARG(ref));
}

/* Steps from the document to a value; filled from the end. */
static bool find_path(const struct json *v, const struct json *at, struct buf *path,
                      uint32_t depth) {
    size_t len = path->len;
    if (v == at) return true;
    if (depth > WALK_DEPTH_MAX) return false;
    for (size_t i = 0; json_kind(v) == JS_LIST && i < json_count(v); i++) {
        buf_printf(path, "/%zu", i);
        if (find_path(json_at(v, i), at, path, depth + 1)) return true;
        path->len = len;
    }
    for (struct json_iter i = json_iter_first(v); json_kind(v) == JS_MAP && json_iter_ok(&i);
         json_iter_next(&i)) {
        buf_put_char(path, '/');
        for (size_t k = 0; k < i.key.len; k++) {
            if (i.key.ptr[k] == '~' || i.key.ptr[k] == '/')
                buf_put_text(path, i.key.ptr[k] == '~' ? "~0" : "~1");
            else
                buf_put_char(path, i.key.ptr[k]);
        }
        if (find_path(i.value, at, path, depth + 1)) return true;
        path->len = len;
    }
    return false;
}

void json_pointer_of(const struct json *doc, const struct json *at, char *out, size_t bytes) {
    struct buf path;
    buf_init(&path, 1 << 20);
    buf_put_char(&path, '#');
    if (!at || !find_path(doc, at, &path, 0)) path.len = path.len ? 1 : 0;
    str_store(buf_str(&path), out, bytes);
    buf_deinit(&path);
}
