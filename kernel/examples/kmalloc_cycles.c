// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Counts the cycles of kmalloc() and kfree(), in the kernel or in user space: of allocations that
 * are kept, of their releases, and of pairs that use the same memory again. With uwork, the mode of
 * per-CPU locks is UWORK_PWLOCKS=0, 1 or 2.
 *
 *	insmod kmalloc_cycles.ko size=64	UWORK_PWLOCKS=1 ./kmalloc_cycles size=64
 *
 * The init function returns -EAGAIN, because the module need not stay loaded.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/timex.h>
#include <linux/vmalloc.h>

static unsigned int size = 64;
module_param(size, uint, 0444);
MODULE_PARM_DESC(size, "bytes of an allocation");

static unsigned int count = 1000000;
module_param(count, uint, 0444);
MODULE_PARM_DESC(count, "allocations that are kept at a time");

static unsigned int rounds = 5;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "rounds; the best one counts");

/* The cycles of `count` allocations, or 0 if one failed. */
static u64 allocate(void **kept)
{
	u64 begin = get_cycles();
	unsigned int i;

	for (i = 0; i < count; i++) {
		kept[i] = kmalloc(size, GFP_KERNEL);
		if (!kept[i])
			break;
	}
	return i == count ? get_cycles() - begin : 0;
}

static u64 release(void **kept)
{
	u64 begin = get_cycles();
	unsigned int i;

	for (i = 0; i < count; i++)
		kfree(kept[i]);
	return get_cycles() - begin;
}

static u64 pairs(void)
{
	u64 begin = get_cycles();
	unsigned int i;

	for (i = 0; i < count; i++) {
		void *memory = kmalloc(size, GFP_KERNEL);

		/* The compiler must not remove the pair. */
		barrier_data(memory);
		kfree(memory);
	}
	return get_cycles() - begin;
}

static int __init kmalloc_cycles_init(void)
{
	u64 first = 0, allocated = U64_MAX, released = U64_MAX, paired = U64_MAX;
	unsigned int round;
	void **kept;

	if (count == 0 || rounds == 0)
		return -EINVAL;
	kept = vzalloc(array_size(count, sizeof(*kept)));
	if (!kept)
		return -ENOMEM;
	for (round = 0; round < rounds; round++) {
		u64 now = allocate(kept);

		if (round == 0)
			first = now;
		else
			allocated = min(allocated, now);
		released = min(released, release(kept));
		paired = min(paired, pairs());
		if (!now) {
			vfree(kept);
			return -ENOMEM;
		}
	}
	vfree(kept);
	pr_info("%u bytes: new memory %llu, again %llu, kfree %llu, pair %llu cycles\n", size, first / count,
		rounds > 1 ? allocated / count : first / count, released / count, paired / count);
	return -EAGAIN;
}

static void __exit kmalloc_cycles_exit(void)
{
}

module_init(kmalloc_cycles_init);
module_exit(kmalloc_cycles_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("The cost of kmalloc and kfree");
