/* embed/struct_give.h - structs whose two sides may know a different number of fields.
 *
 * Fields are only ever added at the end, so the common ones are the first bytes of both; what the
 * receiving side has beyond them keeps what it was.
 */
#ifndef EMBED_STRUCT_GIVE_H
#define EMBED_STRUCT_GIVE_H

#include <stddef.h>

/* Both begin with `size`, which becomes that of the receiving side. */
void struct_give(void *out, size_t out_bytes, const void *in, size_t in_bytes);

#endif
