/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tasklets: items on the BH queues. */
#include <linux/interrupt.h>

void uw_kernel_tasklet_run(struct uw_work *item)
{
	struct tasklet_struct *tasklet = UW_CONTAINER_OF(item, struct tasklet_struct, uw_item);

	if (tasklet->callback)
		tasklet->callback(tasklet);
	else
		tasklet->func(tasklet->data);
}
