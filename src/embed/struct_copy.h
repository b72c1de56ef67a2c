/* embed/struct_copy.h - copying a struct of jitney.h between two versions of the library.
 *
 * Caller and library may be compiled with a different number of fields. New fields are added at the
 * end only, so the fields that both know are the first bytes of each; further fields of the
 * destination stay unchanged.
 */
#ifndef EMBED_STRUCT_COPY_H
#define EMBED_STRUCT_COPY_H

#include <stddef.h>

/* Both structs begin with `size`; that of the destination becomes out_bytes. */
void struct_copy(void *out, size_t out_bytes, const void *in, size_t in_bytes);

#endif
