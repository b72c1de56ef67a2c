/* cli/cmd_completion.c - `jitney completion`: completion scripts for shells, from the tables.
 *
 * One function writes the script of one shell; a shell is a row in `shells`.
 */
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/cli_int.h"
#include "hub/known_models.h"
#include "sched/policy.h"

enum { SCRIPT_BYTES_MAX = 1 << 20 };

static const struct flag flags[] = {{0}};

static bool is_policy(const struct flag *f) { return strcmp(f->name, "policy") == 0; }

static bool takes_words(const struct flag *f) { return f->kind == FLAG_WORD || is_policy(f); }

/* "one|two" as "one two". */
static void put_words(struct buf *out, const struct flag *f) {
    if (is_policy(f)) {
        for (const struct sched_policy *const *p = sched_policies; *p; p++)
            buf_printf(out, "%s%s", p == sched_policies ? "" : " ", (*p)->name);
        return;
    }
    for (const char *p = f->value; *p; p++) buf_put_char(out, *p == '|' ? ' ' : *p);
}

/* Whether the first operand is a model of the cache. */
static bool names_model(const struct command *c) {
    return c->takes_model || strcmp(c->name, "rm") == 0 || strcmp(c->name, "serve") == 0;
}

static void put_known_models(struct buf *out) {
    for (const struct known_model *m = known_models; m->name; m++)
        buf_printf(out, "%s%s", m == known_models ? "" : " ", m->name);
}

/* The first sentence, in single quotes, with a backslash before each of `special`. */
static void put_help(struct buf *out, const char *help, const char *special) {
    size_t len = strcspn(help, ".");
    for (size_t i = 0; i < len; i++) {
        if (help[i] == '\'')
            buf_put_text(out, "'\\''");
        else if (strchr(special, help[i]))
            buf_printf(out, "\\%c", help[i]);
        else
            buf_put_char(out, help[i]);
    }
}

/* --- bash -------------------------------------------------------------------------------- */

static void put_bash_words(struct buf *out, const struct command *c) {
    const struct flag *f;
    for (uint32_t i = 0; (f = flag_at(c, i)); i++) {
        if (!takes_words(f)) continue;
        buf_printf(out, "    \"%s --%s\") words='", c->name, f->name);
        put_words(out, f);
        buf_put_text(out, "' ;;\n");
    }
}

static void put_bash_flags(struct buf *out, const struct command *c) {
    const struct flag *f;
    buf_printf(out, "    %s) flags='", c->name);
    for (uint32_t i = 0; (f = flag_at(c, i)); i++) buf_printf(out, "%s--%s", i ? " " : "", f->name);
    buf_put_text(out, "' ;;\n");
}

/* The model follows the command or -m; names in the cache are asked for when they are needed. */
static void put_bash_models(struct buf *out) {
    buf_put_text(out, "  case \"$command $prev\" in\n");
    for (const struct command *const *c = commands; *c; c++) {
        if (!names_model(*c)) continue;
        const char *name = (*c)->name;
        buf_printf(out, "    \"%s %s\"", name, name);
        if (strcmp(name, "rm") != 0) buf_printf(out, "|\"%s -m\"|\"%s --model\"", name, name);
        buf_put_text(out, ") words=$(\"${COMP_WORDS[0]}\" list --names 2>/dev/null) ;;\n");
    }
    buf_put_text(out, "    \"pull pull\") words='");
    put_known_models(out);
    buf_put_text(out, "' ;;\n"
                      "  esac\n");
}

static void put_bash(struct buf *out) {
    buf_put_text(out, "# bash completion for jitney, made by `jitney completion bash`\n"
                      "_jitney() {\n"
                      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                      "  local command=${COMP_WORDS[1]} words='' flags=''\n"
                      "  COMPREPLY=()\n"
                      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                      "    words='");
    for (const struct command *const *c = commands; *c; c++) buf_printf(out, "%s ", (*c)->name);
    buf_put_text(out, "help --help --version'\n"
                      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                      "    return\n"
                      "  fi\n"
                      "  case \"$command $prev\" in\n");
    for (const struct command *const *c = commands; *c; c++) put_bash_words(out, *c);
    buf_put_text(out, "  esac\n");
    put_bash_models(out);
    buf_put_text(out, "  case \"$command\" in\n");
    for (const struct command *const *c = commands; *c; c++) put_bash_flags(out, *c);
    buf_put_text(out, "  esac\n"
                      "  case \"$cur\" in\n"
                      "    -*) words=$flags ;;\n"
                      "  esac\n"
                      "  if [ -n \"$words\" ]; then\n"
                      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                      "  fi\n"
                      "}\n"
                      "complete -o default -F _jitney jitney\n");
}

/* --- zsh --------------------------------------------------------------------------------- */

#define ZSH_MODELS ":model:{compadd -- $(jitney list --names 2>/dev/null); _files}"

static void put_zsh_flag(struct buf *out, const struct flag *f) {
    buf_printf(out, "        '%s--%s%s[", f->repeats ? "*" : "", f->name,
               f->kind == FLAG_BOOL ? "" : "=");
    put_help(out, f->help, "[]:\\");
    buf_put_char(out, ']');
    if (takes_words(f)) {
        buf_put_text(out, ":value:(");
        put_words(out, f);
        buf_put_char(out, ')');
    } else if (strcmp(f->name, "model") == 0) {
        buf_put_text(out, ZSH_MODELS);
    } else if (f->kind != FLAG_BOOL) {
        buf_printf(out, ":%s:_files", f->value);
    }
    buf_put_text(out, "' \\\n");
}

static void put_zsh_command(struct buf *out, const struct command *c) {
    const struct flag *f;
    buf_printf(out, "    %s)\n      _arguments \\\n", c->name);
    for (uint32_t i = 0; (f = flag_at(c, i)); i++) put_zsh_flag(out, f);
    if (names_model(c)) buf_put_text(out, "        '1" ZSH_MODELS "' \\\n");
    if (strcmp(c->name, "pull") == 0) {
        buf_put_text(out, "        '1:source:(");
        put_known_models(out);
        buf_put_text(out, ")' \\\n");
    }
    buf_put_text(out, "        '*:file:_files' ;;\n");
}

static void put_zsh(struct buf *out) {
    buf_put_text(out, "#compdef jitney\n"
                      "# zsh completion for jitney, made by `jitney completion zsh`\n"
                      "_jitney() {\n"
                      "  local -a commands\n"
                      "  commands=(\n");
    for (const struct command *const *c = commands; *c; c++) {
        buf_printf(out, "    '%s:", (*c)->name);
        put_help(out, (*c)->summary, ":\\");
        buf_put_text(out, "'\n");
    }
    buf_put_text(out, "  )\n"
                      "  if (( CURRENT == 2 )); then\n"
                      "    _describe command commands\n"
                      "    return\n"
                      "  fi\n"
                      "  local command=$words[2]\n"
                      "  shift words\n"
                      "  (( CURRENT-- ))\n"
                      "  case $command in\n");
    for (const struct command *const *c = commands; *c; c++) put_zsh_command(out, *c);
    buf_put_text(out, "  esac\n"
                      "}\n"
                      "_jitney \"$@\"\n");
}

/* --- fish -------------------------------------------------------------------------------- */

#define FISH_MODELS "(jitney list --names 2>/dev/null)"

/* The first operand of a command. */
static void put_fish_operand(struct buf *out, const struct command *c) {
    bool pulls = strcmp(c->name, "pull") == 0;
    if (!names_model(c) && !pulls) return;
    buf_printf(out, "complete -c jitney -n '__fish_seen_subcommand_from %s' -a '", c->name);
    if (pulls)
        put_known_models(out);
    else
        buf_put_text(out, FISH_MODELS);
    buf_put_text(out, "'\n");
}

static void put_fish_flag(struct buf *out, const struct command *c, const struct flag *f) {
    buf_printf(out, "complete -c jitney -n '__fish_seen_subcommand_from %s' -l %s", c->name,
               f->name);
    if (f->letter) buf_printf(out, " -s %c", f->letter);
    if (takes_words(f)) {
        buf_put_text(out, " -x -a '");
        put_words(out, f);
        buf_put_char(out, '\'');
    } else if (strcmp(f->name, "model") == 0) {
        buf_put_text(out, " -r -a '" FISH_MODELS "'");
    } else if (f->kind != FLAG_BOOL) {
        buf_put_text(out, " -r");
    }
    buf_put_text(out, " -d '");
    put_help(out, f->help, "\\");
    buf_put_text(out, "'\n");
}

static void put_fish(struct buf *out) {
    buf_put_text(out, "# fish completion for jitney, made by `jitney completion fish`\n");
    for (const struct command *const *c = commands; *c; c++) {
        buf_printf(out, "complete -c jitney -f -n __fish_use_subcommand -a %s -d '", (*c)->name);
        put_help(out, (*c)->summary, "\\");
        buf_put_text(out, "'\n");
    }
    const struct flag *f;
    for (const struct command *const *c = commands; *c; c++) {
        put_fish_operand(out, *c);
        for (uint32_t i = 0; (f = flag_at(*c, i)); i++) put_fish_flag(out, *c, f);
    }
}

/* ----------------------------------------------------------------------------------------- */

static const struct shell {
    const char *name;
    void (*put)(struct buf *out);
} shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};

static enum exit_code run(const struct args *args, struct err *err) {
    const char *name = args_operands(args) > 0 ? args_operand(args, 0) : "";
    const struct shell *shell = NULL;
    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++)
        if (strcmp(shells[i].name, name) == 0) shell = &shells[i];
    if (!shell) return usage_set(err, "completion: no shell; give bash, zsh or fish");
    struct buf out;
    buf_init(&out, SCRIPT_BYTES_MAX);
    shell->put(&out);
    enum status st = buf_status(&out);
    st = st == ST_OK ? out_write(buf_str(&out), err) : err_set(err, st, "out of memory");
    buf_deinit(&out);
    return exit_of(st);
}

extern const struct command cmd_completion;
const struct command cmd_completion = {
    .name = "completion",
    .summary = "Print a completion script for a shell",
    .operands = "bash|zsh|fish",
    .about = "The script completes commands, flags, policies and the names of models. \"make "
             "install\" installs it for all shells. To "
             "load it by hand: source <(jitney completion bash).",
    .groups = {flags},
    .operands_max = 1,
    .run = run,
};
