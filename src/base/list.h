/* base/list.h - a doubly linked list whose links are members of its items.
 *
 *     struct sink {
 *         struct list_link in_generation; // one member for each list that the item can be in
 *         ...
 *     };
 *     for (struct list_link *l = g->sinks.first; l; l = l->next) {
 *         struct sink *s = LIST_ITEM(l, struct sink, in_generation);
 *         ...
 *     }
 *
 * A list of zeroed memory is empty, and so is a copy of it: `struct list taken = *list; *list =
 * (struct list){0};` takes all items at once. Every function but list_verify takes constant time.
 * A loop that removes items reads `next` before it does.
 *
 * Lifetime: the items belong to the caller, who removes an item from its lists before freeing it.
 * Thread:   one owner at a time.
 * Memory:   never allocates.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list_link {
    struct list_link *next, *prev; /* NULL at the ends, and in an item that is in no list */
};

struct list {
    struct list_link *first, *last;
    uint32_t count;
};

/* The item of `type` whose `member` is at `link`; NULL for NULL. */
#define LIST_ITEM(link, type, member) ((type *)list_item((link), offsetof(type, member)))
void *list_item(struct list_link *link, size_t offset);

void list_push_first(struct list *list, struct list_link *link);
void list_push_last(struct list *list, struct list_link *link);
void list_remove(struct list *list, struct list_link *link); /* `link` is in this list */

/* Removed from the list; NULL if it is empty. */
struct list_link *list_pop_first(struct list *list);

/* True if `link` is in this list, which is the only list that it is ever in. */
bool list_has(const struct list *list, const struct list_link *link);

/* CHECKs that the links agree in both directions and that the count is right. Linear. */
void list_verify(const struct list *list);

#endif
