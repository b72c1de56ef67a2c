/* config/env.c - see config/env.h for the contract. */
#include "config/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

extern char **environ;

const char *env_find(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void env_read(struct env_settings *out) {
    const char *term = env_find("TERM");
    *out = (struct env_settings){
        .cache_dir = env_find("JITNEY_CACHE"),
        .xdg_cache_home = env_find("XDG_CACHE_HOME"),
        .home = env_find("HOME"),
        .hub_endpoint = env_find("HF_ENDPOINT"),
        .hub_token = env_find("HF_TOKEN"),
        .ca_file = env_find("SSL_CERT_FILE"),
        .tmp_dir = env_find("TMPDIR"),
        .no_color = env_find("NO_COLOR") != NULL,
        .dumb_terminal = !term || strcmp(term, "dumb") == 0,
    };
}

void env_remove(const char *name) { unsetenv(name); }

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

char **env_all(void) { return environ; }
