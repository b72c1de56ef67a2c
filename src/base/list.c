/* base/list.c - see base/list.h for the contract. */
#include "base/list.h"

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
