// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The environment besides workqueues: lists, bits, CPUs, per-CPU data, locks, waiting, time,
 * strings, files.
 */
#include <linux/bitmap.h>
#include <linux/cleanup.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/kref.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/random.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timex.h>
#include <linux/topology.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include "check.h"

static int numbers[4];
static unsigned int count_of_numbers;
module_param_array(numbers, int, &count_of_numbers, 0444);
static char *text = "none";
module_param(text, charp, 0444);
static bool flag;
module_param(flag, bool, 0444);
static unsigned long long big;
module_param_named(large, big, ullong, 0444);

struct entry {
	int value;
	struct list_head list;
	struct llist_node llist;
	struct hlist_node hash;
};

static void lists(void)
{
	struct entry entries[4], *at, *next;
	struct llist_node *taken;
	HLIST_HEAD(bucket);
	LLIST_HEAD(stack);
	LIST_HEAD(other);
	LIST_HEAD(list);
	int i, sum = 0;

	for (i = 0; i < 4; i++) {
		entries[i].value = i;
		list_add_tail(&entries[i].list, &list);
		llist_add(&entries[i].llist, &stack);
		hlist_add_head(&entries[i].hash, &bucket);
	}
	list_for_each_entry(at, &list, list)
		sum = sum * 10 + at->value;
	CHECK(sum == 123);
	list_move(&entries[3].list, &list);
	CHECK(list_first_entry(&list, struct entry, list)->value == 3);
	list_splice_init(&list, &other);
	CHECK(list_empty(&list) && list_count_nodes(&other) == 4);
	list_for_each_entry_safe(at, next, &other, list)
		list_del(&at->list);
	CHECK(list_empty(&other));
	CHECK(list_first_entry_or_null(&other, struct entry, list) == NULL);
	taken = llist_reverse_order(llist_del_all(&stack));
	sum = 0;
	llist_for_each_entry(at, taken, llist)
		sum = sum * 10 + at->value;
	CHECK(sum == 123 && llist_empty(&stack));
	sum = 0;
	hlist_for_each_entry(at, &bucket, hash)
		sum = sum * 10 + at->value;
	CHECK(sum == 3210);
}

static void bits(void)
{
	DECLARE_BITMAP(map, 200);
	unsigned long bit;
	int count = 0;

	bitmap_zero(map, 200);
	set_bit(3, map);
	CHECK(!test_and_set_bit(130, map) && test_and_set_bit(130, map));
	for_each_set_bit(bit, map, 200)
		count += (int)bit;
	CHECK(count == 133 && bitmap_weight(map, 200) == 2);
	CHECK(find_first_zero_bit(map, 200) == 0 && find_next_bit(map, 200, 4) == 130);
	clear_bit(3, map);
	CHECK(!test_bit(3, map) && find_first_bit(map, 200) == 130 && find_next_bit(map, 200, 131) == 200);
	CHECK(fls(0) == 0 && fls(1) == 1 && fls64(1ULL << 40) == 41 && __ffs(8) == 3 && ilog2(1024) == 10);
	CHECK(GENMASK(7, 4) == 0xf0 && BIT(5) == 32 && hweight32(0xf0f0) == 8);
	CHECK(roundup_pow_of_two(33) == 64 && is_power_of_2(64) && !is_power_of_2(63));
	CHECK(min(3, 7) == 3 && max_t(u64, 3, 7) == 7 && clamp(11, 0, 9) == 9 && DIV_ROUND_UP(7, 2) == 4);
	CHECK(round_up(13, 8) == 16 && ALIGN(13, 8) == 16 && div_u64(1000000007ULL, 10) == 100000000);
	CHECK(mul_u64_u64_div_u64(1ULL << 40, 1ULL << 40, 1ULL << 50) == 1ULL << 30);
}

static DEFINE_PER_CPU(int, counter) = 5;

static void cpus(void)
{
	struct cpumask mask;
	int *dynamic = alloc_percpu(int);
	unsigned int cpu, count = 0;
	char text_of[64];

	CHECK(num_online_cpus() >= 1 && num_possible_cpus() >= num_online_cpus() && nr_cpu_ids >= num_possible_cpus());
	for_each_online_cpu(cpu) {
		CHECK(cpu_online(cpu) && cpumask_test_cpu((int)cpu, cpumask_of_node(cpu_to_node((int)cpu))));
		CHECK(per_cpu(counter, cpu) == 5);
		per_cpu(counter, cpu) = (int)cpu;
		*per_cpu_ptr(dynamic, cpu) = (int)cpu + 100;
		count++;
	}
	CHECK(count == num_online_cpus());
	for_each_online_cpu(cpu)
		CHECK(per_cpu(counter, cpu) == (int)cpu && *per_cpu_ptr(dynamic, cpu) == (int)cpu + 100);
	this_cpu_inc(counter);
	this_cpu_add(*dynamic, 3);
	free_percpu(dynamic);
	CHECK(cpulist_parse("0-3,9", &mask) == 0 && cpumask_weight(&mask) == 5 && cpumask_last(&mask) < nr_cpu_ids + 10);
	scnprintf(text_of, sizeof(text_of), "%*pbl %*pb", 16, (void *)mask.bits, 16, (void *)mask.bits);
	CHECK(strcmp(text_of, "0-3,9 020f") == 0);
	CHECK(cpulist_parse("3-1", &mask) == -EINVAL);
}

static DEFINE_MUTEX(mutex);
static DEFINE_SPINLOCK(spin);
static DECLARE_RWSEM(rwsem);
static DEFINE_SEMAPHORE(semaphore, 1);
static DECLARE_WAIT_QUEUE_HEAD(waiters);
static unsigned long guarded[4];
static atomic_t woken;
static int condition;

static int contend(void *data)
{
	unsigned long flags;
	int i;

	(void)data;
	for (i = 0; i < 2000; i++) {
		mutex_lock(&mutex);
		guarded[0]++;
		mutex_unlock(&mutex);
		spin_lock_irqsave(&spin, flags);
		guarded[1]++;
		spin_unlock_irqrestore(&spin, flags);
		down_write(&rwsem);
		guarded[2]++;
		up_write(&rwsem);
		down_read(&rwsem);
		up_read(&rwsem);
		down(&semaphore);
		guarded[3]++;
		up(&semaphore);
	}
	wait_event(waiters, READ_ONCE(condition));
	atomic_inc(&woken);
	wake_up(&waiters);
	return 7;
}

static int park(void *data)
{
	while (!kthread_should_stop()) {
		if (kthread_should_park())
			kthread_parkme();
		atomic_inc((atomic_t *)data);
		schedule_timeout_interruptible(1);
	}
	return 0;
}

static void locks_and_waiting(void)
{
	struct task_struct *threads[3], *parking;
	atomic_t beats = ATOMIC_INIT(0);
	DECLARE_COMPLETION_ONSTACK(never);
	int i;

	for (i = 0; i < 3; i++) {
		threads[i] = kthread_create(contend, NULL, "contend/%d", i);
		CHECK(!IS_ERR(threads[i]));
		get_task_struct(threads[i]);
		wake_up_process(threads[i]);
	}
	WRITE_ONCE(condition, 1);
	wake_up_all(&waiters);
	wait_event(waiters, atomic_read(&woken) == 3);
	for (i = 0; i < 3; i++)
		CHECK(kthread_stop_put(threads[i]) == 7);
	for (i = 0; i < 4; i++)
		CHECK(guarded[i] == 6000);
	CHECK(mutex_trylock(&mutex) && !mutex_trylock(&mutex) && mutex_is_locked(&mutex));
	mutex_unlock(&mutex);
	{
		guard(mutex)(&mutex);
		CHECK(mutex_is_locked(&mutex));
	}
	scoped_guard(spinlock, &spin)
		CHECK(spin_is_locked(&spin));
	CHECK(!mutex_is_locked(&mutex) && !spin_is_locked(&spin));
	CHECK(wait_event_timeout(waiters, false, 2) == 0);
	CHECK(wait_event_timeout(waiters, true, 2) == 2);
	CHECK(wait_for_completion_timeout(&never, 2) == 0 && !try_wait_for_completion(&never));
	CHECK(schedule_timeout_uninterruptible(1) == 0);

	parking = kthread_run(park, &beats, "park");
	CHECK(!IS_ERR(parking) && kthread_park(parking) == 0);
	i = atomic_read(&beats);
	schedule_timeout_uninterruptible(3);
	CHECK(atomic_read(&beats) == i);
	kthread_unpark(parking);
	CHECK(kthread_stop(parking) == 0);
	/* A thread that never started. */
	parking = kthread_create(park, &beats, "never");
	CHECK(kthread_stop(parking) == -EINTR);
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static void time_and_texts(void)
{
	ktime_t begin = ktime_get();
	unsigned long then = jiffies;
	char buffer[32], *copy;
	int sorted[] = { 3, 1, 2 }, number;
	u64 dividend = 1000;
	bool yes;

	usleep_range(1000, 2000);
	udelay(10);
	CHECK(ktime_us_delta(ktime_get(), begin) >= 1000 && time_after_eq(jiffies, then) && get_cycles() != 0);
	CHECK(msecs_to_jiffies(1000) == HZ && jiffies_to_msecs(HZ) == 1000 && usecs_to_jiffies(1) == 1);
	CHECK(do_div(dividend, 7) == 6 && dividend == 142);
	sort(sorted, 3, sizeof(int), by_value, NULL);
	CHECK(sorted[0] == 1 && sorted[2] == 3);
	CHECK(kstrtoint("42\n", 0, &number) == 0 && number == 42 && kstrtoint("4x", 0, &number) == -EINVAL);
	CHECK(kstrtoint("0x1f", 0, &number) == 0 && number == 31 && kstrtoint("99999999999", 0, &number) == -ERANGE);
	CHECK(kstrtobool("on", &yes) == 0 && yes && kstrtobool("maybe", &yes) == -EINVAL);
	CHECK(strscpy(buffer, "too long for this buffer, by far it is", sizeof(buffer)) == -E2BIG);
	CHECK(strscpy(buffer, "fits") == 4 && strcmp(strim(strcpy(buffer, "  a b \n")), "a b") == 0);
	CHECK(sysfs_streq("numa\n", "numa") && !sysfs_streq("numa", "num"));
	CHECK(scnprintf(buffer, 5, "%s", "longer") == 4 && strcmp(buffer, "long") == 0);
	scnprintf(buffer, sizeof(buffer), "%-6s|%04d|%llu|%zd|%c|%pe", "ab", 7, 1ULL << 40, (ssize_t)-1, 'x', ERR_PTR(-EAGAIN));
	CHECK(strcmp(buffer, "ab    |0007|1099511627776|-1|x|") == 0 || strncmp(buffer, "ab    |0007|1099511627776|-1|x|-", 32) == 0);
	copy = kasprintf(GFP_KERNEL, "%pe and %%", ERR_PTR(-ENOMEM));
	CHECK(copy && strcmp(copy, "-ENOMEM and %") == 0);
	kfree(copy);
	copy = kstrdup("copy", GFP_KERNEL);
	CHECK(copy && strcmp(copy, "copy") == 0);
	kfree(copy);
	CHECK(get_random_u32_below(10) < 10);
}

static void release(struct kref *kref)
{
	refcount_set(&kref->refcount, 99);
}

static void memory(void)
{
	struct kmem_cache *cache = KMEM_CACHE(entry, 0);
	int *freed_by_itself __free(kfree) = kmalloc_obj(int);
	struct kref kref;
	void *ptr;

	CHECK(freed_by_itself && cache);
	ptr = kmem_cache_zalloc(cache, GFP_KERNEL);
	CHECK(ptr && ((struct entry *)ptr)->value == 0);
	kmem_cache_free(cache, ptr);
	kmem_cache_destroy(cache);
	ptr = vzalloc(4096);
	CHECK(ptr && ((char *)ptr)[4095] == 0);
	vfree(ptr);
	CHECK(kmalloc_array(SIZE_MAX, 16, GFP_KERNEL) == NULL);
	kref_init(&kref);
	kref_get(&kref);
	CHECK(kref_put(&kref, release) == 0 && kref_put(&kref, release) == 1 && kref_read(&kref) == 99);
	CHECK(IS_ERR(ERR_PTR(-EIO)) && PTR_ERR(ERR_PTR(-EIO)) == -EIO && !IS_ERR(&kref));
}

static void files(void)
{
	struct workqueue_struct *wq = alloc_workqueue("environment", WQ_UNBOUND | WQ_SYSFS, 0);
	struct file *file = filp_open("/sys/devices/virtual/workqueue/environment/max_active", O_RDWR, 0);
	char buffer[16];
	loff_t at = 0;

	CHECK(wq && !IS_ERR(file));
	CHECK(kernel_write(file, "17\n", 3, &at) == 3);
	at = 0;
	CHECK(kernel_read(file, buffer, sizeof(buffer), &at) == 3 && memcmp(buffer, "17\n", 3) == 0 && at == 3);
	CHECK(kernel_read(file, buffer, sizeof(buffer), &at) == 0);
	at = 0;
	CHECK(kernel_write(file, "many", 4, &at) == -EINVAL);
	CHECK(filp_close(file, NULL) == 0);
	CHECK(PTR_ERR(filp_open("/sys/bus/workqueue/devices/nobody/nice", O_RDONLY, 0)) == -ENOENT);
	file = filp_open("/sys/module/workqueue/parameters/cpu_intensive_thresh_us", O_RDONLY, 0);
	CHECK(!IS_ERR(file) && kernel_write(file, "1", 1, NULL) == -EBADF);
	filp_close(file, NULL);
	file = filp_open("/proc/self/comm", O_RDONLY, 0);
	at = 0;
	CHECK(!IS_ERR(file) && kernel_read(file, buffer, sizeof(buffer), &at) > 0);
	filp_close(file, NULL);
	destroy_workqueue(wq);
}

static void parameters(void)
{
	CHECK(count_of_numbers == 3 && numbers[0] == 1 && numbers[2] == -3);
	CHECK(strcmp(text, "some words") == 0 && flag && big == 1ULL << 40);
}

static int __init environment_init(void)
{
	lists();
	bits();
	cpus();
	locks_and_waiting();
	time_and_texts();
	memory();
	files();
	parameters();
	pr_cont("ok");
	pr_cont("\n");
	return checked();
}

module_init(environment_init)
MODULE_LICENSE("Dual MIT/GPL");
