// SPDX-License-Identifier: MIT OR Apache-2.0
/* Static keys, calls that run once, loops with a timeout, readers that take a lock, polled SRCU. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/iopoll.h>
#include <linux/jump_label.h>
#include <linux/lockref.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/once.h>
#include <linux/ratelimit.h>
#include <linux/rculist.h>
#include <linux/rtmutex.h>
#include <linux/seqlock.h>
#include <linux/slab.h>
#include <linux/srcu.h>

static DEFINE_STATIC_KEY_FALSE(feature);
static DEFINE_STATIC_KEY_TRUE(usual);
static DEFINE_SEQLOCK(lock);
static DEFINE_RT_MUTEX(mutex);
static HLIST_HEAD(chain);
static int calls, failed;

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%d: %s failed\n", __LINE__, #condition); \
			failed = 1; \
		} \
	} while (0)

static void call(int by)
{
	calls += by;
}

static int poll_calls(void)
{
	return ++calls;
}

static int poll_from(int *value)
{
	return ++*value;
}

static int setup(char *text)
{
	return text != NULL;
}
__setup("switches=", setup);

static void test_keys(void)
{
	EXPECT(!static_branch_unlikely(&feature) && static_branch_likely(&usual));
	static_branch_enable(&feature);
	static_branch_enable(&feature);
	EXPECT(static_branch_unlikely(&feature) && static_key_count(&feature.key) == 1 && static_key_enabled(&feature));
	static_branch_disable(&feature);
	static_branch_inc(&feature);
	static_branch_inc(&feature);
	static_branch_dec(&feature);
	EXPECT(static_branch_unlikely(&feature));
	static_branch_dec(&feature);
	EXPECT(!static_branch_unlikely(&feature));
}

static void test_once(void)
{
	int i, said = 0;

	calls = 0;
	for (i = 0; i < 3; i++) {
		said += DO_ONCE(call, 1);
		DO_ONCE_LITE(call, 10);
		DO_ONCE_SLEEPABLE(call, 100);
		WARN_RATELIMIT(calls < 0, "never %d\n", i);
	}
	EXPECT(calls == 111 && said == 1);
}

static void test_polls(void)
{
	int value = 0, seen;

	calls = 0;
	EXPECT(read_poll_timeout(poll_calls, value, value >= 5, 10, 0, false) == 0 && value == 5);
	EXPECT(read_poll_timeout_atomic(poll_calls, value, value < 0, 1, 200, true) == -ETIMEDOUT);
	value = 0;
	EXPECT(readx_poll_timeout(poll_from, &value, seen, seen == 3, 0, 0) == 0 && seen == 3);
	EXPECT(poll_timeout_us(value++, value > 10, 1, 0, false) == 0);
}

static void test_readers(void)
{
	unsigned int begin;
	int seq = 0;

	read_seqbegin_or_lock(&lock, &seq);
	EXPECT(!need_seqretry(&lock, seq));
	begin = (unsigned int)seq;
	write_seqlock(&lock);
	write_sequnlock(&lock);
	EXPECT(need_seqretry(&lock, (int)begin));
	seq = 1;
	read_seqbegin_or_lock(&lock, &seq);
	EXPECT(!need_seqretry(&lock, seq) && spin_is_locked(&lock.lock));
	done_seqretry(&lock, seq);
	EXPECT(!spin_is_locked(&lock.lock));
	rt_mutex_lock(&mutex);
	EXPECT(!rt_mutex_trylock(&mutex));
	rt_mutex_unlock(&mutex);
}

static void test_srcu(void)
{
	struct srcu_struct domain;
	unsigned long state, later;
	int index;

	EXPECT(init_srcu_struct(&domain) == 0);
	state = get_state_synchronize_srcu(&domain);
	EXPECT(!poll_state_synchronize_srcu(&domain, state));
	synchronize_srcu(&domain);
	EXPECT(poll_state_synchronize_srcu(&domain, state));
	index = srcu_read_lock(&domain);
	state = start_poll_synchronize_srcu(&domain);
	later = start_poll_synchronize_srcu(&domain);
	EXPECT(!poll_state_synchronize_srcu(&domain, state) && !poll_state_synchronize_srcu(&domain, later));
	srcu_read_unlock(&domain, index);
	EXPECT(read_poll_timeout(poll_state_synchronize_srcu, index, index, 100, 0, false, &domain, later) == 0);
	EXPECT(poll_state_synchronize_srcu(&domain, state));
	srcu_barrier(&domain);
	cleanup_srcu_struct(&domain);
}

struct element {
	struct hlist_node node;
	struct list_head entry;
	int value;
};

static void no_sync(void)
{
	calls++;
}

static void test_lists(void)
{
	struct element elements[3] = { { .value = 1 }, { .value = 2 }, { .value = 3 } }, *element;
	LIST_HEAD(from);
	LIST_HEAD(to);
	int i, sum = 0;

	for (i = 0; i < 3; i++) {
		hlist_add_tail_rcu(&elements[i].node, &chain);
		list_add_tail(&elements[i].entry, i < 2 ? &from : &to);
	}
	hlist_for_each_entry_rcu(element, &chain, node)
		sum = sum * 10 + element->value;
	EXPECT(sum == 123);
	for (i = 0; i < 3; i++)
		hlist_del_rcu(&elements[i].node);
	EXPECT(hlist_empty(&chain));
	calls = 0;
	list_splice_init_rcu(&from, &to, no_sync);
	EXPECT(calls == 1 && list_empty(&from) && list_count_nodes(&to) == 3);
	EXPECT(list_first_entry(&to, struct element, entry)->value == 1);
	EXPECT(list_next_or_null_rcu(&to, &elements[2].entry, struct element, entry) == NULL);
}

static int told;

static int accept(struct notifier_block *nb, unsigned long action, void *data)
{
	told += action == 1 ? 1 : 10;
	return NOTIFY_OK;
}

static int refuse(struct notifier_block *nb, unsigned long action, void *data)
{
	told += 100;
	return notifier_from_errno(-EBUSY);
}

static void test_robust(void)
{
	static BLOCKING_NOTIFIER_HEAD(head);
	struct notifier_block first = { .notifier_call = accept, .priority = 2 };
	struct notifier_block second = { .notifier_call = refuse, .priority = 1 };
	struct notifier_block third = { .notifier_call = accept, .priority = 0 };

	blocking_notifier_chain_register(&head, &third);
	blocking_notifier_chain_register(&head, &second);
	blocking_notifier_chain_register(&head, &first);
	EXPECT(notifier_to_errno(blocking_notifier_call_chain_robust(&head, 1, 2, NULL)) == -EBUSY);
	/* The first one is told of both, the refusing one of the first, the last one of none. */
	EXPECT(told == 111);
}

static void test_caches(void)
{
	struct kmem_cache_args args = { .align = 64 };
	struct kmem_cache *cache = kmem_cache_create("switches", 100, &args, SLAB_HWCACHE_ALIGN);
	struct kmem_cache *plain = kmem_cache_create("switches_plain", 32, NULL, 0);
	struct kmem_cache *old = kmem_cache_create("switches_old", 32, 0, SLAB_ACCOUNT, NULL);
	void *object = kmem_cache_alloc(cache, GFP_KERNEL);

	EXPECT(plain && old && ((unsigned long)object & 63) == 0 && kmem_cache_size(cache) == 100);
	kmem_cache_free(cache, object);
	kmem_cache_destroy(cache);
	kmem_cache_destroy(plain);
	kmem_cache_destroy(old);
}

static void test_lockrefs(void)
{
	struct lockref counted;

	lockref_init(&counted);
	lockref_get(&counted);
	EXPECT(lockref_put_return(&counted) == 1 && !lockref_put_or_lock(&counted));
	lockref_mark_dead(&counted);
	spin_unlock(&counted.lock);
	EXPECT(!lockref_get_not_dead(&counted) && __lockref_is_dead(&counted));
}

static int __init switches_init(void)
{
	might_alloc(GFP_KERNEL);
	EXPECT(rcu_is_watching() && !rcu_read_lock_any_held());
	test_keys();
	test_once();
	test_polls();
	test_readers();
	test_srcu();
	test_lists();
	test_robust();
	test_caches();
	test_lockrefs();
	pr_info("%s\n", failed ? "not all right" : "passed");
	return failed ? -EIO : 0;
}

static void __exit switches_exit(void)
{
}

module_init(switches_init);
module_exit(switches_exit);
MODULE_LICENSE("GPL");
