// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Small things that modules take for granted: names, constants, functions that are passed by
 * address, macros without a semicolon.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt
/* A program's own names. */
#define MANY 100
#define ONE 1

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/signal.h>
#include <linux/resource.h>
#include <linux/cleanup.h>
#include <linux/errname.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/timer.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#if BITS_PER_LONG != 64 && BITS_PER_LONG != 32
#error BITS_PER_LONG is no number
#endif
#if !defined(__KERNEL__) || !defined(MODULE) || !defined(CONFIG_SMP)
#error not compiled as a module
#endif
#if BITS_PER_LONG == 64 && !defined(CONFIG_64BIT)
#error CONFIG_64BIT is missing
#endif

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			return -EINVAL; \
		} \
	} while (0)

struct stamp {
	unsigned long jiffies;
	pgoff_t page;
	ktime_t time;
};

/* The names of functions of the C library. Under strict C11 its <sched.h> declares them. */
#ifndef __STRICT_ANSI__
static int clock, time;
#else
#define clock 0
#define time 0
#endif
static rcu_callback_t no_callback;
static cmp_func_t no_compare;

static DEFINE_MUTEX(mutex);

struct counter {
	int held;
};

DEFINE_GUARD(counter, struct counter *, _T->held++, _T->held--)

static unsigned long since(unsigned long jiffies, struct stamp *stamp)
{
	stamp->jiffies = jiffies;
	return stamp->jiffies;
}

static void work_fn(struct work_struct *work)
{
	(void)work;
}

static DEFINE_PER_CPU(int, number);

static int names(void)
{
	struct stamp stamp = { .jiffies = jiffies };
	struct counter counter = { 0 };

	EXPECT(since(5, &stamp) == 5 && stamp.jiffies == 5);
	EXPECT(MANY + ONE == 101 && clock + time == 0 && !no_callback && !no_compare);
	pr_info("%d and %d\n", MANY, ONE);
	{
		guard(counter)(&counter);
		EXPECT(counter.held == 1);
	}
	EXPECT(counter.held == 0);
	return 0;
}

/* The variable goes on while a loop does nothing else, and is set by a sleep. */
static int ticks(void)
{
	unsigned long begin = jiffies, end = begin + 3;

	while (time_before(jiffies, end))
		cpu_relax();
	begin = jiffies;
	msleep(3);
	EXPECT(jiffies - begin >= 3);
	return 0;
}

static int functions(void)
{
	void (*free_functions[])(const void *) = { kfree, vfree, kvfree, kfree_sensitive, kfree_const };
	int (*deletes[])(struct timer_list *) = { del_timer, del_timer_sync, timer_delete_sync, try_to_del_timer_sync };
	void (*barriers[])(void) = { synchronize_rcu, synchronize_rcu_expedited, rcu_barrier };
	void (*calls)(struct rcu_head *, rcu_callback_t) = call_rcu;
	struct timer_list timer;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(free_functions); i++)
		free_functions[i](kmalloc(100, GFP_KERNEL));
	timer_setup(&timer, NULL, 0);
	for (i = 0; i < ARRAY_SIZE(deletes); i++)
		EXPECT(deletes[i](&timer) == 0);
	for (i = 0; i < ARRAY_SIZE(barriers); i++)
		barriers[i]();
	EXPECT(calls != NULL);
	return 0;
}

static int items(void)
{
	static struct lock_class_key key;
	struct work_struct work, other;

	INIT_WORK_KEY(&work, work_fn, &key);
	INIT_WORK_ONSTACK_KEY(&other, work_fn, &key);
	EXPECT(!test_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&work)));
	EXPECT(!(atomic_long_read(&work.data) & WORK_STRUCT_PENDING));
	local_bh_disable();
	schedule_work(&work);
	local_bh_enable();
	flush_work(&work);
	EXPECT(!test_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&work)));
	/* An item that waits for its timer is pending. */
	{
		struct delayed_work later;

		INIT_DELAYED_WORK_ONSTACK(&later, work_fn);
		schedule_delayed_work(&later, round_jiffies_relative(100 * HZ));
		EXPECT(test_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&later.work)));
		EXPECT(cancel_delayed_work_sync(&later));
		/* Code that clears the word of an idle item. */
		atomic_long_set(&later.work.data, 0);
		EXPECT(schedule_delayed_work(&later, 100 * HZ) && cancel_delayed_work_sync(&later));
		destroy_delayed_work_on_stack(&later);
	}
	destroy_work_on_stack(&other);
	return 0;
}

static int busy(struct mutex *lock)
{
	scoped_cond_guard(mutex_try, return -EBUSY, lock)
		return 0;
	return -EINVAL;
}

static int guards(void)
{
	EXPECT(busy(&mutex) == 0);
	{
		guard(mutex)(&mutex);
		EXPECT(busy(&mutex) == -EBUSY);
	}
	EXPECT(!mutex_is_locked(&mutex));
	scoped_guard(mutex, &mutex) {
		EXPECT(mutex_is_locked(&mutex));
		break;
	}
	EXPECT(!mutex_is_locked(&mutex));
	return 0;
}

static int numbers(void)
{
	unsigned long a[2] = { 0x0f, 0x1 }, b[2] = { 0x18, 0x3 }, flags;
	long long value = 7;
	unsigned int cpu, count = 0;

	EXPECT(kstrtoll("-+1", 10, &value) == -EINVAL && value == 7);
	EXPECT(kstrtoll("+-1", 10, &value) == -EINVAL && kstrtoll("-1\n", 10, &value) == 0 && value == -1);
	EXPECT(find_first_and_bit(a, b, 2 * BITS_PER_LONG) == 3);
	EXPECT(find_next_and_bit(a, b, 2 * BITS_PER_LONG, 4) == BITS_PER_LONG);
	EXPECT(find_first_andnot_bit(a, b, BITS_PER_LONG) == 0 && find_next_andnot_bit(b, a, BITS_PER_LONG, 0) == 4);
	raw_local_irq_save(flags);
	preempt_disable();
	EXPECT(__this_cpu_inc_return(number) == 1 && __this_cpu_add_return(number, 4) == 5 &&
	       __this_cpu_sub_return(number, 2) == 3 && __this_cpu_dec_return(number) == 2);
	preempt_enable();
	raw_local_irq_restore(flags);
	for_each_possible_cpu_wrap(cpu, 1)
		count++;
	EXPECT(count == num_possible_cpus());
	BUILD_BUG_ON_NOT_POWER_OF_2(8);
	EXPECT(strcmp(errname(-EPROBE_DEFER), "-EPROBE_DEFER") == 0 && strcmp(errname(EIO), "EIO") == 0 && !errname(4000));
	return 0;
}

static int __init ordinary_init(void)
{
	return names() ?: ticks() ?: functions() ?: items() ?: guards() ?: numbers();
}

static void __exit ordinary_exit(void)
{
}

module_init(ordinary_init)
module_exit(ordinary_exit)
MODULE_LICENSE("Dual MIT/GPL");
