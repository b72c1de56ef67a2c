/* base/list.c - see base/list.h for the contract. */
#include "base/list.h"

#include "base/check.h"

void *list_item(struct list_link *link, size_t offset) {
    return link ? (char *)link - offset : NULL;
}

bool list_has(const struct list *list, const struct list_link *link) {
    return link->prev || list->first == link;
}

/* Puts `link` between two neighbours, of which NULL is an end of the list. */
static void insert(struct list *list, struct list_link *prev, struct list_link *link,
                   struct list_link *next) {
    CHECK(!list_has(list, link));
    link->prev = prev;
    link->next = next;
    *(prev ? &prev->next : &list->first) = link;
    *(next ? &next->prev : &list->last) = link;
    list->count++;
}

void list_push_first(struct list *list, struct list_link *link) {
    insert(list, NULL, link, list->first);
}

void list_push_last(struct list *list, struct list_link *link) {
    insert(list, list->last, link, NULL);
}

void list_remove(struct list *list, struct list_link *link) {
    CHECK(list_has(list, link));
    CHECK(list->count > 0);
    *(link->prev ? &link->prev->next : &list->first) = link->next;
    *(link->next ? &link->next->prev : &list->last) = link->prev;
    *link = (struct list_link){0};
    list->count--;
}

struct list_link *list_pop_first(struct list *list) {
    struct list_link *first = list->first;
    if (first) list_remove(list, first);
    return first;
}

void list_verify(const struct list *list) {
    const struct list_link *prev = NULL;
    uint32_t count = 0;
    for (const struct list_link *l = list->first; l; l = l->next) {
        CHECK(l->prev == prev);
        CHECK(count < list->count);
        prev = l;
        count++;
    }
    CHECK(list->last == prev);
    CHECK(list->count == count);
}
