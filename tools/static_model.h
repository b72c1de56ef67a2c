/* tools/static_model.h - what clang-tidy cannot see from one file, added by check_static.
 *
 * err_set and err_prefix return the status they are given, so a function that fails through
 * them does not go on. Not part of any build; base/status.c, which defines them, is analysed
 * without it.
 */
#include "base/status.h"

#define err_set(err, st, ...) ((void)err_set((err), (st), __VA_ARGS__), (st))
#define err_prefix(err, st, prefix) ((void)err_prefix((err), (st), (prefix)), (st))
