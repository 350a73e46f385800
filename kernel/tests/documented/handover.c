// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tasklets, irq_work and lock-less lists: producers that must not sleep hand over to a work item. */
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/llist.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

struct event {
	struct llist_node node;
	int value;
};

struct source {
	struct tasklet_struct tasklet;
	struct irq_work irq_work;
	struct work_struct work;
	struct llist_head events;
	int handled;
	bool in_bh;
};

static struct source source;
static struct completion finished;

static void source_tasklet(struct tasklet_struct *t)
{
	struct source *s = from_tasklet(s, t, tasklet);

	s->in_bh = in_softirq() != 0;
	irq_work_queue(&s->irq_work);
}

static void source_irq(struct irq_work *irq_work)
{
	struct source *s = container_of(irq_work, struct source, irq_work);

	queue_work(system_highpri_wq, &s->work);
}

static void source_work(struct work_struct *work)
{
	struct source *s = container_of(work, struct source, work);
	struct llist_node *list = llist_reverse_order(llist_del_all(&s->events));
	struct event *e, *n;
	int expect = 0;

	llist_for_each_entry_safe(e, n, list, node) {
		if (e->value == expect++)
			s->handled++;
		kfree(e);
	}
	complete(&finished);
}

static int __init handover_init(void)
{
	unsigned long flags;
	int i;

	init_completion(&finished);
	init_llist_head(&source.events);
	tasklet_setup(&source.tasklet, source_tasklet);
	init_irq_work(&source.irq_work, source_irq);
	INIT_WORK(&source.work, source_work);

	local_irq_save(flags);
	for (i = 0; i < 10; i++) {
		struct event *e = kmalloc(sizeof(*e), GFP_ATOMIC);

		if (!e) {
			local_irq_restore(flags);
			return -ENOMEM;
		}
		e->value = i;
		llist_add(&e->node, &source.events);
	}
	local_irq_restore(flags);
	tasklet_disable(&source.tasklet);
	tasklet_schedule(&source.tasklet);
	tasklet_enable(&source.tasklet);
	return 0;
}

static void __exit handover_exit(void)
{
	wait_for_completion(&finished);
	tasklet_kill(&source.tasklet);
	irq_work_sync(&source.irq_work);
	cancel_work_sync(&source.work);
	if (llist_empty(&source.events) && source.handled == 10 && source.in_bh)
		pr_info("handover: passed\n");
}

module_init(handover_init);
module_exit(handover_exit);
MODULE_LICENSE("GPL");
