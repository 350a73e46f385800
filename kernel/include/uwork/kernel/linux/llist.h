/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lock-free lists with any number of producers. */
#ifndef UWORK_KERNEL_LINUX_LLIST_H
#define UWORK_KERNEL_LINUX_LLIST_H

#include <linux/atomic.h>
#include <linux/container_of.h>

struct llist_head {
	struct llist_node *first;
};

struct llist_node {
	struct llist_node *next;
};

#define LLIST_HEAD_INIT(name) { NULL }
#define LLIST_HEAD(name) struct llist_head name = LLIST_HEAD_INIT(name)

static inline void init_llist_head(struct llist_head *list)
{
	list->first = NULL;
}

/* Makes llist_on_list() return false. */
static inline void init_llist_node(struct llist_node *node)
{
	WRITE_ONCE(node->next, node);
}

static inline bool llist_on_list(const struct llist_node *node)
{
	return READ_ONCE(node->next) != node;
}

static inline bool llist_empty(const struct llist_head *list)
{
	return !READ_ONCE(list->first);
}

/* Returns true if the list was empty. */
static inline bool llist_add(struct llist_node *node, struct llist_head *list)
{
	struct llist_node *first = READ_ONCE(list->first);

	do {
		node->next = first;
	} while (!try_cmpxchg(&list->first, &first, node));
	return !first;
}

static inline struct llist_node *llist_del_all(struct llist_head *list)
{
	return xchg(&list->first, (struct llist_node *)NULL);
}

static inline struct llist_node *llist_reverse_order(struct llist_node *head)
{
	struct llist_node *reversed = NULL;

	while (head) {
		struct llist_node *next = head->next;

		head->next = reversed;
		reversed = head;
		head = next;
	}
	return reversed;
}

#define llist_entry(ptr, type, member) container_of(ptr, type, member)
#define llist_for_each(pos, node) for ((pos) = (node); (pos); (pos) = (pos)->next)
#define llist_for_each_safe(pos, n, node) \
	for ((pos) = (node); (pos) && ((n) = (pos)->next, 1); (pos) = (n))
#define uw_llist_entry_safe(ptr, type, member) \
	__extension__({ \
		__typeof__(ptr) uw_node = (ptr); \
		uw_node ? llist_entry(uw_node, type, member) : (type *)NULL; \
	})
#define llist_for_each_entry(pos, node, member) \
	for ((pos) = uw_llist_entry_safe((node), __typeof__(*(pos)), member); (pos); \
	     (pos) = uw_llist_entry_safe((pos)->member.next, __typeof__(*(pos)), member))
#define llist_for_each_entry_safe(pos, n, node, member) \
	for ((pos) = uw_llist_entry_safe((node), __typeof__(*(pos)), member); \
	     (pos) && ((n) = uw_llist_entry_safe((pos)->member.next, __typeof__(*(n)), member), 1); (pos) = (n))

static inline struct llist_node *llist_next(struct llist_node *node)
{
	return node->next;
}

/* Adds entries that are already linked. Returns true if the list was empty. */
static inline bool llist_add_batch(struct llist_node *first, struct llist_node *last, struct llist_head *list)
{
	struct llist_node *next = READ_ONCE(list->first);

	do {
		last->next = next;
	} while (!try_cmpxchg(&list->first, &next, first));
	return !next;
}

/* For one consumer at a time. */
static inline struct llist_node *llist_del_first(struct llist_head *list)
{
	struct llist_node *first = smp_load_acquire(&list->first);

	while (first && !try_cmpxchg(&list->first, &first, READ_ONCE(first->next)))
		;
	return first;
}

static inline struct llist_node *llist_del_first_init(struct llist_head *list)
{
	struct llist_node *first = llist_del_first(list);

	if (first)
		init_llist_node(first);
	return first;
}

#endif
