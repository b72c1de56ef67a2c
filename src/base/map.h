/* base/map.h - two hash tables: text to a number, and a 64-bit key to a number.
 *
 * Open addressing with linear probing, at most half full, xxHash for text. Keys of the text
 * map are borrowed: their bytes must outlive the map. Nothing is ever removed.
 *
 * Lifetime: create, fill, destroy; lookups may run on many threads once filling is over.
 */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

struct map;   /* struct str -> uint32_t */
struct map64; /* uint64_t   -> uint64_t */

struct map *map_create(size_t expected_count); /* NULL when out of memory; grows as needed */
void map_destroy(struct map *m);               /* NULL is fine */
enum status map_put(struct map *m, struct str key, uint32_t value); /* replaces an old value */
bool map_find(const struct map *m, struct str key, uint32_t *value);
size_t map_count(const struct map *m);

struct map64 *map64_create(size_t expected_count);
void map64_destroy(struct map64 *m);
enum status map64_put(struct map64 *m, uint64_t key, uint64_t value);
bool map64_find(const struct map64 *m, uint64_t key, uint64_t *value);
size_t map64_count(const struct map64 *m);

#endif
