// SPDX-License-Identifier: MIT OR Apache-2.0
/* CONFIG_PWLOCKS=n: local locks and work items, whatever the environment asks for. */
#define CONFIG_PWLOCKS n

#include <stdlib.h>

#include <linux/percpu.h>
#include <linux/pwlocks.h>
#include <linux/slab.h>

#include "check.h"

#ifdef CONFIG_PWLOCKS
#error "n is not defined, as in a kernel build"
#endif

struct counter {
	pw_lock_t lock;
	long count;
};

static DEFINE_PER_CPU(struct counter, counters);
static bool in_worker;

static void drain(struct work_struct *work)
{
	int cpu = pw_get_cpu(work);

	in_worker = (uw_kernel_context() & UW_KERNEL_IN_WORKER) != 0;
	pw_lock(&counters.lock, cpu);
	per_cpu(counters, cpu).count = 0;
	pw_unlock(&counters.lock, cpu);
}

static int __init without_pwlocks_init(void)
{
	static struct pw_struct pw;
	int cpu = (int)cpumask_first(cpu_online_mask);

	setenv("UWORK_PWLOCKS", "1", 1);
	kfree(kmalloc(64, GFP_KERNEL));
	/* Without restartable sequences every process is in mode 1. */
	if (uw_percpu_mode() != 0) {
		char why[256];

		uw_percpu_reason(why, sizeof(why));
		CHECK(strstr(why, "refused"));
	}
	pw_lock_local(&counters.lock);
	this_cpu_ptr(&counters)->count = 1;
	pw_unlock_local(&counters.lock);
	CHECK(!pw_is_cpu_remote((int)nr_cpu_ids - 1));
	INIT_PW(&pw, drain, cpu);
	CHECK(pw_queue_on(cpu, system_percpu_wq, &pw));
	pw_flush(&pw);
	/* Queued, and not called in place. */
	CHECK(in_worker && per_cpu(counters, cpu).count == 0);
	return checked();
}
module_init(without_pwlocks_init)
