// SPDX-License-Identifier: MIT OR Apache-2.0
/* Slow probes that run in parallel and register in order. */
#include <linux/async.h>
#include <linux/delay.h>
#include <linux/module.h>

#define DEVICES 8

static ASYNC_DOMAIN_EXCLUSIVE(probe_domain);
static int registered[DEVICES];
static int nr_registered;
static atomic_t probed = ATOMIC_INIT(0);

static void probe(void *data, async_cookie_t cookie)
{
	int device = (int)(long)data;

	usleep_range(100 * (DEVICES - device), 150 * (DEVICES - device));
	atomic_inc(&probed);
	/* All probes that were scheduled before this one have to be over. */
	async_synchronize_cookie_domain(cookie, &probe_domain);
	registered[nr_registered++] = device;
}

static void count(void *data, async_cookie_t cookie)
{
	atomic_inc((atomic_t *)data);
}

static int __init probe_init(void)
{
	atomic_t counted = ATOMIC_INIT(0);
	async_cookie_t cookie;
	long i;

	for (i = 0; i < DEVICES; i++)
		async_schedule_domain(probe, (void *)i, &probe_domain);
	async_synchronize_full_domain(&probe_domain);
	for (i = 0; i < DEVICES; i++)
		if (registered[i] != i)
			return -EINVAL;

	cookie = async_schedule(count, &counted);
	async_schedule(count, &counted);
	async_synchronize_cookie(cookie + 1);
	if (atomic_read(&counted) < 1)
		return -EINVAL;
	async_synchronize_full();
	if (atomic_read(&counted) != 2 || atomic_read(&probed) != DEVICES)
		return -EINVAL;
	if (current_is_async())
		return -EINVAL;
	pr_info("async: passed\n");
	return 0;
}

static void __exit probe_exit(void)
{
	async_synchronize_full();
}

module_init(probe_init);
module_exit(probe_exit);
MODULE_LICENSE("GPL");
