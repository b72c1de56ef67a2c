/* cli/interrupt.h - Ctrl-C as a message instead of a signal handler.
 *
 * One thread waits for SIGINT; all other threads block it. The effect depends on the state of the
 * program:
 *
 *     LOADING --settle--> IDLE --aim(flag) --> GENERATING --aim(NULL)--> IDLE
 *     ends the program    interrupt_fd is       *flag = true
 *                         readable
 *
 * Lifetime: create before any other thread is started, destroy. Thread: the main thread.
 */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>

#include "base/status.h"

struct interrupt; /* opaque */

enum status interrupt_create(struct interrupt **out, struct err *err);
void interrupt_destroy(struct interrupt *i); /* NULL is fine */

void interrupt_settle(struct interrupt *i);
/* Until the next call Ctrl-C sets `flag`; NULL: it makes interrupt_fd readable. */
void interrupt_aim(struct interrupt *i, _Atomic bool *flag);

/* Becomes readable when Ctrl-C is pressed while idle; take() empties it and returns true. */
int interrupt_fd(const struct interrupt *i);
bool interrupt_take(struct interrupt *i);

#endif
