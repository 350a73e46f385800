// SPDX-License-Identifier: MIT OR Apache-2.0
/* Notifier chains of each kind, with priorities and a handler that stops the chain. */
#include <linux/module.h>
#include <linux/notifier.h>

#define EVENT_UP	1
#define EVENT_DOWN	2

static ATOMIC_NOTIFIER_HEAD(atomic_chain);
static BLOCKING_NOTIFIER_HEAD(blocking_chain);
static RAW_NOTIFIER_HEAD(raw_chain);
static struct srcu_notifier_head srcu_chain;

static char order[8];
static int used;

static int first_cb(struct notifier_block *nb, unsigned long event, void *data)
{
	order[used++] = 'f';
	return NOTIFY_OK;
}

static int last_cb(struct notifier_block *nb, unsigned long event, void *data)
{
	int *limit = data;

	order[used++] = 'l';
	if (event == EVENT_DOWN && limit && *limit)
		return notifier_from_errno(-EBUSY);
	return NOTIFY_DONE;
}

static struct notifier_block first_nb = {
	.notifier_call = first_cb,
	.priority = 10,
};

static struct notifier_block last_nb = {
	.notifier_call = last_cb,
};

static int __init notifiers_init(void)
{
	int limit = 1, ret;

	blocking_notifier_chain_register(&blocking_chain, &last_nb);
	blocking_notifier_chain_register(&blocking_chain, &first_nb);
	ret = blocking_notifier_call_chain(&blocking_chain, EVENT_UP, NULL);
	if (ret != NOTIFY_DONE || used != 2 || order[0] != 'f' || order[1] != 'l')
		return -EINVAL;
	ret = blocking_notifier_call_chain(&blocking_chain, EVENT_DOWN, &limit);
	if (!(ret & NOTIFY_STOP_MASK) || notifier_to_errno(ret) != -EBUSY)
		return -EINVAL;
	if (blocking_notifier_chain_unregister(&blocking_chain, &first_nb) ||
	    blocking_notifier_chain_unregister(&blocking_chain, &last_nb))
		return -EINVAL;
	if (blocking_notifier_chain_unregister(&blocking_chain, &last_nb) != -ENOENT)
		return -EINVAL;

	used = 0;
	atomic_notifier_chain_register(&atomic_chain, &first_nb);
	atomic_notifier_call_chain(&atomic_chain, EVENT_UP, NULL);
	atomic_notifier_chain_unregister(&atomic_chain, &first_nb);

	raw_notifier_chain_register(&raw_chain, &first_nb);
	raw_notifier_call_chain(&raw_chain, EVENT_UP, NULL);
	raw_notifier_chain_unregister(&raw_chain, &first_nb);

	srcu_init_notifier_head(&srcu_chain);
	srcu_notifier_chain_register(&srcu_chain, &first_nb);
	srcu_notifier_call_chain(&srcu_chain, EVENT_UP, NULL);
	srcu_notifier_chain_unregister(&srcu_chain, &first_nb);
	srcu_cleanup_notifier_head(&srcu_chain);
	if (used != 3)
		return -EINVAL;
	pr_info("notifiers: passed\n");
	return 0;
}

static void __exit notifiers_exit(void)
{
}

module_init(notifiers_init);
module_exit(notifiers_exit);
MODULE_LICENSE("GPL");
