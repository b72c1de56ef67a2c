/* cli/replay_output.h - what `jitney replay` prints: the answers, and a summary for people.
 *
 * Thread: any.
 */
#ifndef CLI_REPLAY_OUTPUT_H
#define CLI_REPLAY_OUTPUT_H

struct buf;
struct replay;
struct replay_summary;

/* One object per choice and line, in the order of the list. */
void replay_put_results(const struct replay *r, struct buf *out);
void replay_put_table(const struct replay_summary *s, struct buf *out); /* for people */

#endif
