// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * kmalloc() and slab caches: sizes, alignment, zeros, what shrinks and destroys say, and the checks
 * of caches with debug flags. In debug mode and under the sanitizers each object is an allocation
 * of malloc(), which those tools check; then the slab's own reports do not exist.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

#include <linux/completion.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "check.h"

/* Whether objects are in caches, and not allocations of malloc(). */
static bool has_caches(void)
{
	return !IS_INSTRUMENTED && !getenv("UWORK_DEBUG");
}

/* What pr_err() prints while `action` runs, which the caller frees with free(). */
static char *errors_of(void (*action)(void *), void *argument)
{
	FILE *stream = tmpfile();
	int error = dup(STDERR_FILENO);
	char *text = calloc(1, 4096);

	CHECK(stream && error >= 0 && text);
	dup2(fileno(stream), STDERR_FILENO);
	action(argument);
	dup2(error, STDERR_FILENO);
	CHECK(pread(fileno(stream), text, 4095, 0) >= 0);
	fclose(stream);
	close(error);
	return text;
}

static bool is_zero(const char *memory, size_t size)
{
	while (size > 0 && !memory[size - 1])
		size--;
	return size == 0;
}

static void every_size(void)
{
	size_t size;

	for (size = 1; size <= 20000; size += size < 300 ? 1 : 97) {
		char *memory = kmalloc(size, GFP_KERNEL), *zeros;

		CHECK(memory && ksize(memory) >= size);
		memset(memory, 0xff, ksize(memory));
		kfree(memory);
		zeros = kmalloc(size, GFP_ATOMIC | __GFP_ZERO);
		CHECK(zeros && is_zero(zeros, size));
		CHECK(IS_ALIGNED((uintptr_t)zeros, ARCH_KMALLOC_MINALIGN) || size < ARCH_KMALLOC_MINALIGN);
		kfree(zeros);
	}
}

static void powers_of_two_are_aligned_to_themselves(void)
{
	void *kept[20];
	size_t size;
	int i;

	for (size = 8; size <= 65536; size *= 2) {
		for (i = 0; i < 20; i++) {
			kept[i] = kmalloc(size, GFP_KERNEL);
			CHECK(kept[i] && IS_ALIGNED((uintptr_t)kept[i], size));
		}
		for (i = 0; i < 20; i++)
			kfree(kept[i]);
	}
}

/* Memory that was used before, of about this size. */
static void use_and_free(size_t size)
{
	void *used[16];
	int i;

	for (i = 0; i < 16; i++) {
		used[i] = kmalloc(size, GFP_KERNEL);
		CHECK(used[i] != NULL);
		memset(used[i], 0xbb, ksize(used[i]));
	}
	for (i = 0; i < 16; i++)
		kfree(used[i]);
}

/*
 * A block that was cleared when it was allocated, and that only krealloc() with __GFP_ZERO resizes, has zeros wherever
 * the program has not written: in place and moved, within a size class, and in what the C library gives beyond the size.
 */
static void zeros_stay_zeros(void)
{
	static const size_t sizes[] = { 8, 40, 190, 1000, 8000, 8200, 10000, 12288, 20000, 60000, 200000 };
	size_t from, to;

	for (from = 0; from < ARRAY_SIZE(sizes); from++) {
		for (to = 0; to < ARRAY_SIZE(sizes); to++) {
			size_t first = sizes[from], then = sizes[to], rest;
			char *block;

			use_and_free(first);
			use_and_free(then);
			block = kzalloc(first, GFP_KERNEL);
			memset(block, 0xaa, min(first, then));
			block = krealloc(block, then, GFP_KERNEL | __GFP_ZERO);
			CHECK(block && (then <= first || is_zero(block + first, then - first)));
			rest = ksize(block);
			block = krealloc(block, rest, GFP_KERNEL | __GFP_ZERO);
			CHECK(block && is_zero(block + then, rest - then));
			kfree(block);
		}
	}
}

static void nothing_and_everything(void)
{
	void *nothing = kmalloc(0, GFP_KERNEL);
	char *grown, *same;

	CHECK(nothing && ZERO_OR_NULL_PTR(nothing) && ksize(nothing) == 0);
	kfree(nothing);
	kfree(NULL);
	kvfree(NULL);
	CHECK(ksize(NULL) == 0);
	CHECK(!kmalloc_array(SIZE_MAX / 2, 3, GFP_KERNEL) && !kcalloc(SIZE_MAX / 2, 3, GFP_KERNEL));
	/* The address sanitizer ends the program instead. */
	if (has_caches())
		CHECK(!kmalloc(SIZE_MAX, GFP_KERNEL) && !kzalloc(SIZE_MAX - 4096, GFP_KERNEL) && !vmalloc(SIZE_MAX - 1));

	grown = krealloc(NULL, 10, GFP_KERNEL);
	CHECK(grown != NULL);
	strcpy(grown, "kept");
	same = krealloc(grown, ksize(grown), GFP_KERNEL);
	CHECK(same == grown);
	grown = krealloc(same, 100000, GFP_KERNEL);
	CHECK(grown && !strcmp(grown, "kept"));
	grown = krealloc(grown, 20, GFP_KERNEL);
	CHECK(grown && !strcmp(grown, "kept") && ksize(grown) < 100000);
	CHECK(krealloc(grown, 0, GFP_KERNEL) == ZERO_SIZE_PTR);
	grown = kzalloc(5, GFP_KERNEL);
	grown = krealloc(grown, 5000, GFP_KERNEL | __GFP_ZERO);
	CHECK(grown && is_zero(grown, 5000));
	/* What a call cuts off in place is zero when a later call adds it again. */
	memset(grown, 0xff, 5000);
	grown = krealloc(grown, 4500, GFP_KERNEL | __GFP_ZERO);
	grown = krealloc(grown, 5000, GFP_KERNEL | __GFP_ZERO);
	CHECK(grown && (grown[4499] & 0xff) == 0xff && is_zero(grown + 4500, 500));
	kfree_sensitive(grown);
	zeros_stay_zeros();

	/* Memory of the C library, from functions that give it away. */
	kfree(strdup("not of kmalloc()"));
}

struct node {
	struct rcu_head rcu;
	int number;
};

static void freed_after_a_grace_period(void)
{
	struct node *node = kmalloc(sizeof(*node), GFP_KERNEL);

	kfree_rcu(node, rcu);
	rcu_barrier();
}

static struct kmem_cache *leaky;

static void destroy_leaky(void *unused)
{
	(void)unused;
	kmem_cache_destroy(leaky);
}

/* A module frees the last objects of its cache, and then destroys the cache. */
static void destroy_waits_for_kfree_rcu(void)
{
	struct kmem_cache *cache;
	struct node *node;
	int round;
	char *text;

	if (!has_caches())
		return;
	for (round = 0; round < 20; round++) {
		cache = kmem_cache_create("awaited", sizeof(struct node), 0, 0, NULL);
		node = kmem_cache_alloc(cache, GFP_KERNEL);
		kfree_rcu(node, rcu);
		leaky = cache;
		text = errors_of(destroy_leaky, NULL);
		CHECK(!text[0]);
		free(text);
	}
}

/*
 * The last object of a cache goes by kfree_rcu(), and its cache is destroyed, where the caller cannot wait for that: the
 * cache goes after the object, without a report. One of two caches has readers.
 */
static void free_and_destroy(void)
{
	struct kmem_cache *caches[] = {
		kmem_cache_create("left", sizeof(struct node), 0, 0, NULL),
		kmem_cache_create("left to readers", sizeof(struct node), 0, SLAB_TYPESAFE_BY_RCU, NULL),
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(caches); i++) {
		struct node *node = kmem_cache_alloc(caches[i], GFP_KERNEL);

		CHECK(caches[i] && node);
		kfree_rcu(node, rcu);
		kmem_cache_destroy(caches[i]);
	}
}

static DECLARE_COMPLETION(destroyed);

static void destroy_in_callback(struct rcu_head *head)
{
	kfree(UW_CONTAINER_OF(head, struct node, rcu));
	free_and_destroy();
	complete(&destroyed);
}

static void destroy_in_tasklet(struct tasklet_struct *tasklet)
{
	(void)tasklet;
	free_and_destroy();
	complete(&destroyed);
}

static struct kthread_worker *made_in_hook;

static void *destroy_in_hook(const struct uw_thread *thread, void *arg)
{
	(void)thread;
	(void)arg;
	free_and_destroy();
	/* It waits for an item. The hook runs on several threads. */
	__atomic_store_n(&made_in_hook, kthread_create_worker(0, "refused"), __ATOMIC_RELAXED);
	return NULL;
}

static void after_hook(struct work_struct *work)
{
	(void)work;
	complete(&destroyed);
}

static void destroy_where_it_must_not_wait(void *unused)
{
	struct node *node = kmalloc(sizeof(*node), GFP_KERNEL);
	DECLARE_TASKLET(tasklet, destroy_in_tasklet);
	struct uw_thread_hooks *hooks;
	struct work_struct work;

	(void)unused;
	call_rcu(&node->rcu, destroy_in_callback);
	wait_for_completion(&destroyed);
	tasklet_schedule(&tasklet);
	wait_for_completion(&destroyed);
	tasklet_kill(&tasklet);
	rcu_read_lock();
	free_and_destroy();
	rcu_read_unlock();
	hooks = uw_thread_hooks_add(destroy_in_hook, NULL, NULL);
	CHECK(hooks);
	INIT_WORK_ONSTACK(&work, after_hook);
	queue_work(system_dfl_wq, &work);
	wait_for_completion(&destroyed);
	flush_work(&work);
	CHECK(uw_thread_hooks_remove(hooks) == 0);
	rcu_barrier();
}

static void destroy_waits_nowhere_else(void)
{
	char *text = errors_of(destroy_where_it_must_not_wait, NULL);
	/* The hook may still run on another thread. */
	struct kthread_worker *made = __atomic_load_n(&made_in_hook, __ATOMIC_RELAXED);

	CHECK(IS_ERR(made) && PTR_ERR(made) == -EDEADLK);
	CHECK(strstr(text, "kthread_create_worker: the caller is a thread hook"));
	CHECK(!strstr(text, "BUG"));
	free(text);
}

static int constructed;

static void construct(void *object)
{
	*(int *)object = 17;
	constructed++;
}

static void constructors(void)
{
	struct kmem_cache *cache = kmem_cache_create("constructed", 40, 0, 0, construct);
	int *object = kmem_cache_alloc(cache, GFP_KERNEL), *again;

	CHECK(object && *object == 17 && constructed > 0);
	kmem_cache_free(cache, object);
	again = kmem_cache_alloc(cache, GFP_KERNEL);
	CHECK(again && *again == 17);
	/* kfree() takes objects of caches, too. */
	kfree(again);
	kmem_cache_destroy(cache);
}

static void shrink_returns_memory(void)
{
	struct kmem_cache *cache = kmem_cache_create("shrunk", 1000, 64, SLAB_HWCACHE_ALIGN, NULL);
	static void *objects[2000];
	volatile char *first;
	int i, status;

	CHECK(cache && kmem_cache_size(cache) == 1000);
	CHECK(kmem_cache_alloc_bulk(cache, GFP_KERNEL, ARRAY_SIZE(objects), objects) == ARRAY_SIZE(objects));
	for (i = 0; i < 2000; i++) {
		CHECK(IS_ALIGNED((uintptr_t)objects[i], 64));
		memset(objects[i], i, 1000);
	}
	first = objects[0];
	kmem_cache_free_bulk(cache, ARRAY_SIZE(objects), objects);
	CHECK(kmem_cache_shrink(cache) == 0);
	if (has_caches()) {
		pid_t child = fork();

		/* Memory that was returned faults. */
		if (child == 0) {
			*first = 1;
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	objects[0] = kmem_cache_alloc(cache, GFP_KERNEL | __GFP_ZERO);
	CHECK(objects[0] && is_zero(objects[0], 1000));
	kmem_cache_free(cache, objects[0]);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(NULL);
}

static void refused(void *unused)
{
	(void)unused;
	CHECK(!kmem_cache_create(NULL, 10, 0, 0, NULL));
	CHECK(!kmem_cache_create("empty", 0, 0, 0, NULL));
	CHECK(!kmem_cache_create("odd", 10, 12, 0, NULL));
	CHECK(!kmem_cache_create("huge", (unsigned int)KMALLOC_MAX_SIZE + 1, 0, 0, NULL));
}

static void bad_arguments_are_named(void)
{
	char *text = errors_of(refused, NULL);

	CHECK(strstr(text, "kmem_cache_create(NULL)") && strstr(text, "(odd): the alignment is 0 or a power of 2"));
	free(text);
}

/* Not inlined: the reports name this function. */
static noinline void destroy_reports_leaks(void)
{
	void *kept, *other;
	char *text;

	if (!has_caches())
		return;
	leaky = kmem_cache_create("leaky", 100, 0, SLAB_STORE_USER, NULL);
	kept = kmem_cache_alloc(leaky, GFP_KERNEL);
	other = kmem_cache_alloc(leaky, GFP_KERNEL);
	kmem_cache_free(leaky, other);
	text = errors_of(destroy_leaky, NULL);
	CHECK(strstr(text, "BUG leaky: kmem_cache_destroy() with 1 objects still allocated"));
	CHECK(strstr(text, "it is still allocated") && strstr(text, "allocated in destroy_reports_leaks"));
	free(text);
	/* The cache is as it was. */
	kmem_cache_free(leaky, kept);
	text = errors_of(destroy_leaky, NULL);
	CHECK(!text[0]);
	free(text);
}

static struct kmem_cache *checked_cache;

static void free_it(void *object)
{
	kmem_cache_free(checked_cache, object);
}

static void alloc_all_of_it(void *result)
{
	void *objects[64];
	int i;

	/* One of them is the object that was freed last. */
	for (i = 0; i < 64; i++)
		objects[i] = kmem_cache_alloc(checked_cache, GFP_KERNEL);
	for (i = 0; i < 64; i++)
		kmem_cache_free(checked_cache, objects[i]);
	(void)result;
}

static void reported(void (*action)(void *), void *argument, const char *what)
{
	char *text = errors_of(action, argument);

	if (!strstr(text, "BUG checked: object") || !strstr(text, what) || !strstr(text, "allocated in checks")) {
		pr_err("expected: %s, reported: %s\n", what, text);
		failed++;
	}
	free(text);
}

static noinline void checks(void)
{
	char *object;

	if (!has_caches())
		return;
	/* The object that was freed last is in the cache of the CPU. */
	set_cpus_allowed_ptr(current, cpumask_of(raw_smp_processor_id()));
	checked_cache = kmem_cache_create("checked", 50, 0, SLAB_RED_ZONE | SLAB_POISON | SLAB_STORE_USER, NULL);
	object = kmem_cache_alloc(checked_cache, GFP_KERNEL);
	CHECK(object && (unsigned char)object[0] == 0x6b && (unsigned char)object[49] == 0xa5);
	memset(object, 1, 50);
	object[50] = 1;
	reported(free_it, object, "the red zone behind it was overwritten");
	object = kmem_cache_alloc(checked_cache, GFP_KERNEL);
	object[-1] = 1;
	reported(free_it, object, "the red zone before it was overwritten");
	reported(free_it, object, "it was freed, and is freed again");
	object[10] = 1;
	reported(alloc_all_of_it, NULL, "it was written to after it was freed");
	kmem_cache_destroy(checked_cache);
	set_cpus_allowed_ptr(current, cpu_online_mask);
}

static struct kmem_cache *elsewhere;

static void free_elsewhere(void *object)
{
	kmem_cache_free(elsewhere, object);
}

static void an_object_of_another_cache_is_not_freed(void)
{
	void *object;
	char *text;

	if (!has_caches())
		return;
	elsewhere = kmem_cache_create("elsewhere", 64, 0, 0, NULL);
	object = kmalloc(64, GFP_KERNEL);
	text = errors_of(free_elsewhere, object);
	CHECK(strstr(text, "BUG elsewhere: object") && strstr(text, "belongs to kmalloc-64"));
	free(text);
	kfree(object);
	kmem_cache_destroy(elsewhere);
}

static void a_child_uses_the_caches(void)
{
	void *inherited;
	int status;
	pid_t child;

	if (!CAN_FORK_WITH_THREADS)
		return;
	inherited = kmalloc(64, GFP_KERNEL);
	child = fork();
	if (child == 0) {
		int i;

		kfree(inherited);
		for (i = 0; i < 10000; i++)
			kfree(kmalloc((size_t)(i % 3000), GFP_KERNEL));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	kfree(inherited);
}

/* Objects go from one thread to the other through these places. */
struct parcel {
	unsigned int size;
	unsigned char content[];
};
static struct parcel *places[64];

/* A thread that is stopped before it has started does not call its function. */
static DECLARE_COMPLETION(started);

static int exchange(void *seed)
{
	unsigned long state = (unsigned long)seed;
	int i;

	complete(&started);
	for (i = 0; i < 20000; i++) {
		struct parcel *parcel;
		unsigned int at, size;

		state = state * 6364136223846793005ul + 1442695040888963407ul;
		size = (unsigned int)((state >> 33) % 1200);
		parcel = kmalloc(sizeof(*parcel) + size, GFP_KERNEL);
		parcel->size = size;
		memset(parcel->content, (int)(size & 0xff), size);
		parcel = __atomic_exchange_n(&places[(state >> 50) % 64], parcel, __ATOMIC_ACQ_REL);
		/* Objects that overlap differ here. */
		for (at = 0; parcel && at < parcel->size; at++) {
			if (parcel->content[at] != (parcel->size & 0xff))
				return -EIO;
		}
		kfree(parcel);
	}
	return 0;
}

static void threads_free_what_others_allocate(void)
{
	struct task_struct *threads[4];
	int i;

	for (i = 0; i < 4; i++) {
		threads[i] = kthread_create(exchange, (void *)(uintptr_t)(i + 1), "exchange/%d", i);
		get_task_struct(threads[i]);
		wake_up_process(threads[i]);
	}
	for (i = 0; i < 4; i++)
		wait_for_completion(&started);
	for (i = 0; i < 4; i++) {
		CHECK(kthread_stop(threads[i]) == 0);
		put_task_struct(threads[i]);
	}
	for (i = 0; i < 64; i++)
		kfree(places[i]);
}

static int __init slab_init(void)
{
	every_size();
	powers_of_two_are_aligned_to_themselves();
	nothing_and_everything();
	freed_after_a_grace_period();
	destroy_waits_for_kfree_rcu();
	destroy_waits_nowhere_else();
	constructors();
	shrink_returns_memory();
	bad_arguments_are_named();
	destroy_reports_leaks();
	checks();
	an_object_of_another_cache_is_not_freed();
	a_child_uses_the_caches();
	threads_free_what_others_allocate();
	return checked();
}
module_init(slab_init)
