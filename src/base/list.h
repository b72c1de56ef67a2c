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
 * (struct list){0};` takes all items at once. Every function but list_verify takes constant time,
 * and is inline because every token passes through a list. A loop that removes items reads `next`
 * before it does.
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

#include "base/check.h"

struct list_link {
    struct list_link *next, *prev; /* NULL at the ends, and in an item that is in no list */
};

struct list {
    struct list_link *first, *last;
    uint32_t count;
};

/* The item of `type` whose `member` is at `link`; NULL for NULL. */
#define LIST_ITEM(link, type, member) ((type *)list_item((link), offsetof(type, member)))
static inline void *list_item(struct list_link *link, size_t offset) {
    return link ? (char *)link - offset : NULL;
}

/* True if `link` is in this list, which is the only list that it is ever in. */
static inline bool list_has(const struct list *list, const struct list_link *link) {
    return link->prev || list->first == link;
}

static inline void list_push_first(struct list *list, struct list_link *link) {
    CHECK(!list_has(list, link));
    *link = (struct list_link){.next = list->first};
    *(list->first ? &list->first->prev : &list->last) = link;
    list->first = link;
    list->count++;
}

static inline void list_push_last(struct list *list, struct list_link *link) {
    CHECK(!list_has(list, link));
    *link = (struct list_link){.prev = list->last};
    *(list->last ? &list->last->next : &list->first) = link;
    list->last = link;
    list->count++;
}

/* `link` is in this list. */
static inline void list_remove(struct list *list, struct list_link *link) {
    CHECK(list_has(list, link));
    CHECK(list->count > 0);
    *(link->prev ? &link->prev->next : &list->first) = link->next;
    *(link->next ? &link->next->prev : &list->last) = link->prev;
    *link = (struct list_link){0};
    list->count--;
}

/* Removed from the list; NULL if it is empty. */
static inline struct list_link *list_pop_first(struct list *list) {
    struct list_link *first = list->first;
    if (!first) return NULL;
    *(first->next ? &first->next->prev : &list->last) = NULL;
    list->first = first->next;
    *first = (struct list_link){0};
    list->count--;
    return first;
}

/* CHECKs that the links agree in both directions and that the count is right. Linear. */
void list_verify(const struct list *list);

#endif
