/* SPDX-License-Identifier: Apache-2.0 */
/* Circular doubly linked lists inside the objects they link (musl has no sys/queue.h). */
#ifndef HUTCH_GUEST_LIST_H
#define HUTCH_GUEST_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name)          \
	{                        \
		&(name), &(name) \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

/* Leaves l empty, so that it may be deleted again. */
static inline void list_del(struct list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}

#define list_for_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* it may be deleted inside; its neighbours must not. */
#define list_for_each_safe(it, head)                                              \
	for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
	     it = it##_next, it##_next = it->next)

#endif
