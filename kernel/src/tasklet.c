/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasklets and irq_work: items on the BH queues. */
#include <linux/interrupt.h>
#include <linux/irq_work.h>

void uw_kernel_tasklet_run(struct uw_work *item)
{
	struct tasklet_struct *tasklet = UW_CONTAINER_OF(item, struct tasklet_struct, uw_item);

	if (__atomic_load_n(&tasklet->uw_disabled, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&tasklet->uw_missed, 1, __ATOMIC_SEQ_CST);
		/* It may have been enabled since, without a view of the mark. */
		if (__atomic_load_n(&tasklet->uw_disabled, __ATOMIC_SEQ_CST) ||
		    !__atomic_exchange_n(&tasklet->uw_missed, 0, __ATOMIC_SEQ_CST))
			return;
	}
	if (tasklet->callback)
		tasklet->callback(tasklet);
	else
		tasklet->func(tasklet->data);
}

void uw_kernel_irq_work_run(struct uw_work *item)
{
	struct irq_work *work = UW_CONTAINER_OF(item, struct irq_work, uw_item);

	work->func(work);
}
