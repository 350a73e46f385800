/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef OWN_LIST_H
#define OWN_LIST_H

#include <linux/kernel.h>

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list->prev = list;
}

static inline void list_add_tail(struct list_head *entry, struct list_head *head)
{
	entry->prev = head->prev;
	entry->next = head;
	head->prev->next = entry;
	head->prev = entry;
}

#endif
