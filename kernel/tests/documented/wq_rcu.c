// SPDX-License-Identifier: MIT OR Apache-2.0
/* An object that is freed in process context after a grace period. */
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

struct session {
	int id;
	struct rcu_work free_work;
};

static struct session __rcu *session;
static struct workqueue_struct *free_wq;
static int freed;

static void session_free(struct work_struct *work)
{
	struct session *s = container_of(to_rcu_work(work), struct session, free_work);

	might_sleep();
	freed += s->id;
	kfree(s);
}

static int __init session_init(void)
{
	struct session *s;

	free_wq = alloc_workqueue("free", WQ_UNBOUND, 0);
	if (!free_wq)
		return -ENOMEM;
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s) {
		destroy_workqueue(free_wq);
		return -ENOMEM;
	}
	s->id = 42;
	INIT_RCU_WORK(&s->free_work, session_free);
	rcu_assign_pointer(session, s);
	return 0;
}

static void __exit session_exit(void)
{
	struct session *s;
	int id;

	rcu_read_lock();
	s = rcu_dereference(session);
	id = s->id;
	rcu_read_unlock();

	s = rcu_replace_pointer(session, NULL, true);
	queue_rcu_work(free_wq, &s->free_work);
	rcu_barrier();
	destroy_workqueue(free_wq);
	if (freed == id)
		pr_info("rcu_work: passed\n");
}

module_init(session_init);
module_exit(session_exit);
MODULE_LICENSE("GPL");
