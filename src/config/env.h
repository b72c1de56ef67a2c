/* config/env.h - the environment variables of the process, read once.
 *
 * The only place that reads environment variables. A command reads them at its start and passes the
 * struct down, so a test can pass any values.
 *
 * Lifetime: the texts belong to the process's environment; do not change it meanwhile.
 * Thread: read at start-up, before other threads.
 */
#ifndef CONFIG_ENV_H
#define CONFIG_ENV_H

#include <stdbool.h>

/* Every text is NULL when the variable is unset or empty. */
struct env_settings {
    const char *cache_dir;      /* JITNEY_CACHE: the cache folder itself          */
    const char *xdg_cache_home; /* XDG_CACHE_HOME: the folder above it            */
    const char *home;           /* HOME                                           */
    const char *hub_endpoint;   /* HF_ENDPOINT: another Hugging Face hub          */
    const char *hub_token;      /* HF_TOKEN: access token for the hub             */
    const char *ca_file;        /* SSL_CERT_FILE: certificates to trust           */
    const char *tmp_dir;        /* TMPDIR: folder for temporary files             */
    bool no_color;              /* NO_COLOR is set to anything                    */
    bool dumb_terminal;         /* TERM is "dumb" or unset: no cursor movement    */
};

void env_read(struct env_settings *out);

/* Any other variable, for tables of names (config/settings.h); NULL when unset or empty. */
const char *env_find(const char *name);
/* Remove a variable, so that no child process inherits it. */
void env_remove(const char *name);

/* The environment for a child process: ours with the variable `name` set to `value`. One
 * block for mem_free; the other texts in it are borrowed from ours. NULL when out of memory. */
char **env_for_child(const char *name, const char *value);
/* The environment for a child process that inherits ours as it is. */
char **env_all(void);

#endif
