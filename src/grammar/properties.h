/* grammar/properties.h - the characters that \p{...} stands for.
 *
 * General categories by their short and long names (L, Letter, Lu, ...), with or without
 * "General_Category=" or "gc=", and Any, ASCII and Assigned. Scripts are not known.
 *
 * Thread: any.
 */
#ifndef GRAMMAR_PROPERTIES_H
#define GRAMMAR_PROPERTIES_H

#include "grammar/chars.h"

/* False: the name is not known. */
bool property_chars(struct str name, struct code_set *out);

#endif
