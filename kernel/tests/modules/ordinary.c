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
#include <linux/cpumask.h>
#include <linux/errname.h>
#include <linux/hrtimer.h>
#include <linux/mempool.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/rtmutex.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <linux/string.h>
#include <linux/sysfs.h>
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

/*
 * The names of functions of the C library: a parameter, variables, and functions, except for those
 * that compilers know, which warn about another type.
 */
static int index = 3;
module_param(index, int, 0444);
/* Whether an item's word is the library's. With UWORK_DEBUG=objects it is a pattern, which says nothing and must not change. */
static bool has_data = true;
module_param(has_data, bool, 0444);
static unsigned int clock, time, rand, div, labs, putenv, initstate, setstate, getw, puts, errno, exit, abort, free, malloc,
	calloc, printf;

static unsigned int random(void)
{
	return 4;
}

static int select(int left, int right)
{
	return left - right;
}

static int remove(int value)
{
	return value;
}

static int rename(void)
{
	return 1;
}

static int stat(void)
{
	return 2;
}

static int system(void)
{
	return 3;
}

static int mktemp(void)
{
	return 5;
}

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
	EXPECT(MANY + ONE == 101 && clock + time + rand + div + labs == 0 && !no_callback && !no_compare);
	EXPECT(putenv + initstate + setstate + getw + puts + errno + exit + abort + free + malloc + calloc + printf == 0);
	EXPECT(select(9, remove(2)) + rename() + stat() + system() + (int)random() + mktemp() == 22 && index == 3);
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
	int (*deletes[])(struct timer_list *) = {
		del_timer, del_timer_sync, timer_delete, timer_delete_sync, try_to_del_timer_sync
	};
	void (*adds[])(struct timer_list *) = { add_timer, add_timer_local, add_timer_global };
	unsigned long (*rounds[])(unsigned long, int) = {
		__round_jiffies, __round_jiffies_relative, __round_jiffies_up, __round_jiffies_up_relative
	};
	void (*barriers[])(void) = {
		synchronize_rcu, synchronize_rcu_expedited, rcu_barrier, synchronize_net, local_bh_disable, local_bh_enable,
		cpus_read_lock, cpus_read_unlock
	};
	void (*calls[])(struct rcu_head *, rcu_callback_t) = { call_rcu, call_rcu_hurry };
	void *(*allocates[])(unsigned long) = { vmalloc, vzalloc, vmalloc_user, vmalloc_32 };
	void *(*reallocates[])(const void *, size_t, gfp_t) = { krealloc, kvrealloc };
	void (*free_cpus)(void __percpu *) = free_percpu;
	int (*sends)(int, struct task_struct *, int) = send_sig;
	void (*panics)(const char *, ...) = panic;
	void (*restarts)(struct hrtimer *) = hrtimer_restart;
	int (*emits)(char *, const char *, ...) = sysfs_emit;
	mempool_t *(*pools)(int, mempool_alloc_t *, mempool_free_t *, void *, gfp_t, int) = mempool_create_node;
	struct kmem_cache *(*caches)(const char *, unsigned int, unsigned int, slab_flags_t, unsigned int, unsigned int,
				     void (*)(void *)) = kmem_cache_create_usercopy;
	int (*schedulers)(struct task_struct *, int, const struct sched_param *) = sched_setscheduler;
	int (*nices)(const struct task_struct *) = task_nice;
	void (*sleeps[])(void) = { schedule, io_schedule };
	void (*flushes[])(struct workqueue_struct *) = { flush_workqueue, __flush_workqueue };
	struct timer_list timer;
	struct kmem_cache *cache;
	mempool_t *pool;
	char text[4096];
	void *memory;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(free_functions); i++)
		free_functions[i](kmalloc(100, GFP_KERNEL));
	timer_setup(&timer, NULL, 0);
	for (i = 0; i < ARRAY_SIZE(deletes); i++)
		EXPECT(deletes[i](&timer) == 0);
	for (i = 0; i < ARRAY_SIZE(adds); i++) {
		timer.expires = jiffies + 86400 * HZ;
		adds[i](&timer);
		EXPECT(timer_delete(&timer) == 1);
	}
	for (i = 0; i < ARRAY_SIZE(rounds); i++)
		EXPECT(rounds[i](jiffies + 10 * HZ, 0) != 0);
	for (i = 0; i < ARRAY_SIZE(barriers); i++)
		barriers[i]();
	for (i = 0; i < ARRAY_SIZE(allocates); i++) {
		memory = allocates[i](5000);
		EXPECT(memory);
		vfree(memory);
	}
	for (i = 0; i < ARRAY_SIZE(flushes); i++)
		flushes[i](system_dfl_wq);
	memory = reallocates[1](reallocates[0](NULL, 10, GFP_KERNEL), 100, GFP_KERNEL);
	EXPECT(memory && calls[0] != calls[1] && panics && restarts && sleeps[0] != sleeps[1]);
	kfree(memory);
	free_cpus(alloc_percpu(int));
	EXPECT(sends(0, current, 0) == 0 && nices(current) <= MAX_NICE);
	EXPECT(schedulers(current, SCHED_NORMAL, &(struct sched_param){ .sched_priority = 0 }) == 0);
	EXPECT(emits(text, "%s", "five\n") == 5);
	cache = caches("ordinary", 64, 0, 0, 0, 64, NULL);
	EXPECT(cache);
	pool = pools(1, mempool_alloc_slab, mempool_free_slab, cache, GFP_KERNEL, NUMA_NO_NODE);
	EXPECT(pool);
	mempool_destroy(pool);
	kmem_cache_destroy(cache);
	return 0;
}

static enum hrtimer_restart ring(struct hrtimer *timer)
{
	(void)timer;
	return HRTIMER_NORESTART;
}

static int more_functions(void)
{
	void (*changes[])(struct rt_mutex *) = { rt_mutex_init, rt_mutex_lock, rt_mutex_unlock, rt_mutex_destroy };
	int (*acquires[])(struct rt_mutex *) = { rt_mutex_lock_interruptible, rt_mutex_lock_killable };
	int (*tries)(struct rt_mutex *) = rt_mutex_trylock;
	bool (*looks)(struct rt_mutex *) = rt_mutex_is_locked;
	char *(*prints)(gfp_t, const char *, ...) = kasprintf;
	char *(*vprints)(gfp_t, const char *, va_list) = kvasprintf;
	size_t (*copies[])(char *, const char *, size_t) = { strlcpy, strlcat };
	void (*starts)(struct hrtimer *, ktime_t, u64, enum hrtimer_mode) = hrtimer_start_range_ns;
	int (*sleeps)(ktime_t *, u64, enum hrtimer_mode) = schedule_hrtimeout_range;
	bool (*masks)(cpumask_var_t *, gfp_t, int) = zalloc_cpumask_var_node;
	ktime_t time = 1000;
	struct rt_mutex lock;
	struct hrtimer timer;
	cpumask_var_t mask;
	char text[8], *printed;
	size_t i;

	changes[0](&lock);
	for (i = 0; i < ARRAY_SIZE(acquires); i++) {
		EXPECT(acquires[i](&lock) == 0 && looks(&lock) && !tries(&lock));
		changes[2](&lock);
	}
	changes[1](&lock);
	changes[2](&lock);
	EXPECT(!looks(&lock));
	changes[3](&lock);
	printed = prints(GFP_KERNEL, "%d", 42);
	EXPECT(printed && strcmp(printed, "42") == 0 && vprints);
	EXPECT(copies[0](text, printed, sizeof(text)) == 2 && copies[1](text, "3", sizeof(text)) == 3 && !strcmp(text, "423"));
	kfree(printed);
	hrtimer_setup(&timer, ring, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	starts(&timer, ktime_set(1000, 0), 1000, HRTIMER_MODE_REL);
	EXPECT(hrtimer_cancel(&timer) == 1);
	set_current_state(TASK_INTERRUPTIBLE);
	EXPECT(sleeps(&time, 1000, HRTIMER_MODE_REL) == 0);
	EXPECT(masks(&mask, GFP_KERNEL, NUMA_NO_NODE) && cpumask_empty(mask));
	free_cpumask_var(mask);
	return 0;
}

static int items(void)
{
	static struct lock_class_key key;
	struct work_struct work, other;

	INIT_WORK_KEY(&work, work_fn, &key);
	INIT_WORK_ONSTACK_KEY(&other, work_fn, &key);
	EXPECT(!has_data || !test_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&work)));
	EXPECT(!has_data || !(atomic_long_read(&work.data) & WORK_STRUCT_PENDING));
	EXPECT(!work_pending(&work));
	local_bh_disable();
	schedule_work(&work);
	local_bh_enable();
	flush_work(&work);
	EXPECT(!has_data || !test_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&work)));
	/* An item that waits for its timer is pending. */
	{
		struct delayed_work later;

		INIT_DELAYED_WORK_ONSTACK(&later, work_fn);
		schedule_delayed_work(&later, round_jiffies_relative(86400 * HZ));
		EXPECT(!has_data || test_bit(WORK_STRUCT_PENDING_BIT, work_data_bits(&later.work)));
		EXPECT(delayed_work_pending(&later));
		EXPECT(cancel_delayed_work_sync(&later));
		/* Code that clears the word of an idle item. */
		if (has_data)
			atomic_long_set(&later.work.data, 0);
		EXPECT(schedule_delayed_work(&later, 86400 * HZ) && cancel_delayed_work_sync(&later));
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
	u32 word;
	u64 large;
	u8 small;

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
	EXPECT(!check_shl_overflow(3u, 4, &word) && word == 48 && !check_shl_overflow(1u, 63, &large) && large >> 63);
	EXPECT(check_shl_overflow(16u, 4, &small) && check_shl_overflow(-1, 1, &word));
	BUILD_BUG_ON_NOT_POWER_OF_2(8);
	EXPECT(strcmp(errname(-EPROBE_DEFER), "-EPROBE_DEFER") == 0 && strcmp(errname(EIO), "EIO") == 0 && !errname(4000));
	return 0;
}

static int __init ordinary_init(void)
{
	return names() ?: ticks() ?: functions() ?: more_functions() ?: items() ?: guards() ?: numbers();
}

static void __exit ordinary_exit(void)
{
}

module_init(ordinary_init)
module_exit(ordinary_exit)
MODULE_LICENSE("Dual MIT/GPL");
