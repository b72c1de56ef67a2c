/* cli/setting_args.c - see cli/setting_args.h. */
#include "cli/setting_args.h"

const struct flag flags_settings_engine[] = {
#define SETTING SETTING_FLAG
#include "config/settings_engine.def"
#undef SETTING
    {0},
};

static enum status read_one(const struct args *args, const struct flag *flag, struct settings *s,
                            struct err *err) {
    struct str name = str_of(flag->name);
    if (flag->kind == FLAG_BOOL)
        return args_on(args, flag->name) ? settings_set(s, name, STR("true"), FROM_FLAG, err)
                                         : ST_OK;
    if (!flag->repeats) {
        const char *value = args_typed(args, flag->name);
        return value ? settings_set(s, name, str_of(value), FROM_FLAG, err) : ST_OK;
    }
    for (uint32_t i = 0; i < args_count(args, flag->name); i++)
        TRY(settings_set(s, name, str_of(args_text_at(args, flag->name, i)), FROM_FLAG, err));
    return ST_OK;
}

enum status setting_args_read(const struct args *args, const struct flag *flags, struct settings *s,
                              struct err *err) {
    for (const struct flag *flag = flags; flag->name; flag++) TRY(read_one(args, flag, s, err));
    return ST_OK;
}
