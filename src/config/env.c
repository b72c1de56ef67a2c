/* config/env.c - see config/env.h for the contract. */
#include "config/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

extern char **environ;

static const char *text_of(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void env_read(struct env_settings *out) {
    const char *term = text_of("TERM");
    *out = (struct env_settings){
        .cache_dir = text_of("JITNEY_CACHE"),
        .xdg_cache_home = text_of("XDG_CACHE_HOME"),
        .home = text_of("HOME"),
        .hub_endpoint = text_of("HF_ENDPOINT"),
        .hub_token = text_of("HF_TOKEN"),
        .ca_file = text_of("SSL_CERT_FILE"),
        .tmp_dir = text_of("TMPDIR"),
        .no_color = text_of("NO_COLOR") != NULL,
        .dumb_terminal = !term || strcmp(term, "dumb") == 0,
    };
}

char **env_for_child(const char *name, const char *value) {
    size_t count = 0;
    while (environ[count]) count++;
    size_t name_bytes = strlen(name);
    size_t own_bytes = name_bytes + 1 + strlen(value) + 1;
    size_t table_bytes = (count + 2) * sizeof(char *);
    char **table = mem_alloc(table_bytes + own_bytes);
    if (!table) return NULL;

    char *own = (char *)table + table_bytes;
    snprintf(own, own_bytes, "%s=%s", name, value);
    size_t n = 0;
    table[n++] = own;
    for (size_t i = 0; i < count; i++) {
        bool same = strncmp(environ[i], name, name_bytes) == 0 && environ[i][name_bytes] == '=';
        if (!same) table[n++] = environ[i];
    }
    table[n] = NULL;
    return table;
}
