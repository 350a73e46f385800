// SPDX-License-Identifier: MIT OR Apache-2.0
/* Includes the two headers first, and the program's own definitions after them. */
#ifdef BY_PATH
#include <uwork/kernel/linux/timer.h>
#include <uwork/kernel/linux/workqueue.h>
#else
#include <linux/timer.h>
#include <linux/workqueue.h>
#endif
#include <stddef.h>

typedef uint64_t u64;
typedef struct {
	int counter;
} atomic_t;
struct list_head {
	struct list_head *next, *prev;
};
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

static inline void list_del(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
}

#define EXPECTED_HZ 1000
#include "use.h"
