// SPDX-License-Identifier: MIT OR Apache-2.0
/* Tasklets, as older drivers have them, and a rate limit of their messages. */
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/ratelimit.h>

struct nic { struct tasklet_struct rx; int packets; struct completion done; };
static struct nic nic;
static DEFINE_RATELIMIT_STATE(noise, 86400 * HZ, 2);

static void rx(struct tasklet_struct *t)
{
	struct nic *n = from_tasklet(n, t, rx);

	if (++n->packets == 3)
		complete(&n->done);
	else
		tasklet_schedule(t);
}

static int __init tasklets_init(void)
{
	int i, said = 0;

	init_completion(&nic.done);
	tasklet_setup(&nic.rx, rx);
	tasklet_schedule(&nic.rx);
	wait_for_completion(&nic.done);
	tasklet_kill(&nic.rx);
	ratelimit_set_flags(&noise, RATELIMIT_MSG_ON_RELEASE);
	for (i = 0; i < 10; i++)
		if (__ratelimit(&noise))
			said++;
	if (nic.packets != 3 || said != 2 || ratelimit_state_get_miss(&noise) != 8)
		return -EINVAL;
	ratelimit_state_exit(&noise);
	if (ratelimit_state_get_miss(&noise))
		return -EINVAL;
	pr_info("tasklets: passed\n");
	return 0;
}

static void __exit tasklets_exit(void) {}
module_init(tasklets_init);
module_exit(tasklets_exit);
MODULE_LICENSE("GPL");
