// SPDX-License-Identifier: MIT OR Apache-2.0
/* A circular buffer between one producer and one consumer, and atomics as their documentation uses them. */
#include <linux/atomic.h>
#include <linux/circ_buf.h>
#include <linux/kthread.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/slab.h>

#define RING_SIZE 16

static struct circ_buf ring;
static atomic_t sum = ATOMIC_INIT(0);
static atomic64_t big = ATOMIC64_INIT(0);
static atomic_long_t total;
static DECLARE_COMPLETION(consumed);

static int producer(void *unused)
{
	int i = 0;

	while (i < 200) {
		unsigned long head = ring.head;
		/* The consumer index is read before the slot is written. */
		unsigned long tail = READ_ONCE(ring.tail);

		if (CIRC_SPACE(head, tail, RING_SIZE) >= 1) {
			ring.buf[head] = i++ % 100;
			smp_store_release(&ring.head, (head + 1) & (RING_SIZE - 1));
		} else {
			cond_resched();
		}
	}
	return 0;
}

static int consumer(void *unused)
{
	int i = 0;

	while (i < 200) {
		unsigned long head = smp_load_acquire(&ring.head);
		unsigned long tail = ring.tail;

		if (CIRC_CNT(head, tail, RING_SIZE) >= 1) {
			atomic_add(ring.buf[tail], &sum);
			i++;
			smp_store_release(&ring.tail, (tail + 1) & (RING_SIZE - 1));
		} else {
			cond_resched();
		}
	}
	complete(&consumed);
	return 0;
}

static bool add_unless_limit(atomic_t *v, int limit)
{
	int old = atomic_read(v);

	do {
		if (old >= limit)
			return false;
	} while (!atomic_try_cmpxchg(v, &old, old + 1));
	return true;
}

static int __init ring_init(void)
{
	struct task_struct *task;
	unsigned long word = 5;
	void *pointer = NULL;
	atomic_t v;

	BUILD_BUG_ON_NOT_POWER_OF_2(RING_SIZE);
	ring.buf = kmalloc(RING_SIZE, GFP_KERNEL);
	if (!ring.buf)
		return -ENOMEM;
	task = kthread_run(consumer, NULL, "consumer");
	if (IS_ERR(task))
		return PTR_ERR(task);
	task = kthread_run(producer, NULL, "producer");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wait_for_completion(&consumed);
	if (atomic_read(&sum) != 9900)
		return -EINVAL;

	atomic_set(&v, 9);
	if (!add_unless_limit(&v, 10) || add_unless_limit(&v, 10) || atomic_fetch_add(5, &v) != 10 ||
	    atomic_sub_and_test(14, &v) || !atomic_dec_and_test(&v) || atomic_inc_not_zero(&v) ||
	    atomic_xchg(&v, 3) != 3 - 3 || atomic_cmpxchg(&v, 3, 4) != 3 || atomic_add_return_relaxed(1, &v) != 5)
		return -EINVAL;
	atomic64_add(1LL << 40, &big);
	atomic_long_inc(&total);
	smp_mb__before_atomic();
	atomic_or(0x10, &v);
	smp_mb__after_atomic();
	atomic_andnot(0x1, &v);
	if (atomic64_read(&big) >> 40 != 1 || atomic_long_read(&total) != 1 || atomic_read_acquire(&v) != 0x14)
		return -EINVAL;
	if (cmpxchg(&word, 5, 6) != 5 || xchg(&word, 7) != 6 || cmpxchg(&pointer, NULL, &word) || pointer != &word)
		return -EINVAL;
	pr_info("ring: passed\n");
	return 0;
}

static void __exit ring_exit(void)
{
	kfree(ring.buf);
}

module_init(ring_init);
module_exit(ring_exit);
MODULE_LICENSE("GPL");
