/* base/check.h - assertions that stay on in production.
 *
 * CHECK is for bugs: a condition that no input, file, client or device can make false. It
 * prints the place and the condition and aborts. DCHECK is the same in debug builds and
 * nothing in release; use it only where the check would cost time on a measured hot path.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

_Noreturn void check_failed(const char *file, int line, const char *condition);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0)) check_failed(__FILE__, __LINE__, #cond);                 \
    } while (0)

#ifdef NDEBUG
#define DCHECK(cond)                                                                               \
    do {                                                                                           \
        (void)sizeof(cond);                                                                        \
    } while (0)
#else
#define DCHECK(cond) CHECK(cond)
#endif

#endif
