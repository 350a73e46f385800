/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A deliberate race: writes of an item and of the main thread without an order between them. The
 * thread sanitizer must report it; otherwise its silence about the other tests would mean nothing.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#include <uwork.h>

static long written;
static atomic_int is_queued;
static atomic_int has_written;

static void write_on_worker(struct uw_work *work)
{
	(void)work;
	/*
	 * Without this wait, the last stores of uw_queue_work() could order this write before the
	 * main thread's next one.
	 */
	while (atomic_load_explicit(&is_queued, memory_order_relaxed) == 0)
		sched_yield();
	written++;
	/* The main thread reads it. Relaxed: it must not order the writes. */
	atomic_store_explicit(&has_written, 1, memory_order_relaxed);
}

int main(void)
{
	struct uw_queue *queue = uw_queue_create("race", 0, 0);
	struct uw_work item;

	if (queue == NULL)
		return 2;
	uw_work_init(&item, write_on_worker);
	if (uw_queue_work(queue, &item) < 0)
		return 2;
	atomic_store_explicit(&is_queued, 1, memory_order_relaxed);
	while (atomic_load_explicit(&has_written, memory_order_relaxed) == 0)
		sched_yield();
	written++;
	uw_work_flush(&item);
	uw_queue_destroy(queue);
	return written == 2 ? 0 : 1;
}
