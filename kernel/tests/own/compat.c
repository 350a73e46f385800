// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with everything in one "compat.h": types, lists, atomics, bits, and another library's
 * RCU.
 */
#include <stddef.h>
#include <stdint.h>

/* Types that differ from those of the kernel-compatible headers. */
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t ktime_t;
typedef struct {
	volatile int counter;
} atomic_t;
struct list_head {
	struct list_head *next, *prev;
};
struct rcu_head {
	void (*func)(struct rcu_head *head);
};
typedef struct {
	char taken;
} spinlock_t;
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define BIT(n) (1u << (n))
#define READ_ONCE(x) (x)

static inline int atomic_read(const atomic_t *v)
{
	return v->counter;
}

static inline void set_bit(int nr, unsigned long *word)
{
	*word |= 1ul << nr;
}

static inline void rcu_read_lock(void)
{
}

static inline void rcu_read_unlock(void)
{
}

static inline void synchronize_rcu(void)
{
}

#ifdef BY_PATH
#include <uwork/kernel/linux/workqueue.h>
#else
#include <linux/workqueue.h>
#endif

#define EXPECTED_HZ 1000
#include "use.h"
