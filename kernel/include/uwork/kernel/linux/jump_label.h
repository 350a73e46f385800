/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Branches that rarely change. Here each is a load and a comparison: code is not patched. */
#ifndef UWORK_KERNEL_LINUX_JUMP_LABEL_H
#define UWORK_KERNEL_LINUX_JUMP_LABEL_H

#include <linux/atomic.h>
#include <linux/bug.h>

struct static_key {
	atomic_t enabled;
};

/* Two types, as the kernel's, although the branches do not differ. */
struct static_key_true {
	struct static_key key;
};

struct static_key_false {
	struct static_key key;
};

#define STATIC_KEY_INIT_TRUE { ATOMIC_INIT(1) }
#define STATIC_KEY_INIT_FALSE { ATOMIC_INIT(0) }
#define STATIC_KEY_TRUE_INIT { STATIC_KEY_INIT_TRUE }
#define STATIC_KEY_FALSE_INIT { STATIC_KEY_INIT_FALSE }
#define DEFINE_STATIC_KEY_TRUE(name) struct static_key_true name = STATIC_KEY_TRUE_INIT
#define DEFINE_STATIC_KEY_FALSE(name) struct static_key_false name = STATIC_KEY_FALSE_INIT
#define DEFINE_STATIC_KEY_TRUE_RO(name) DEFINE_STATIC_KEY_TRUE(name)
#define DEFINE_STATIC_KEY_FALSE_RO(name) DEFINE_STATIC_KEY_FALSE(name)
#define DECLARE_STATIC_KEY_TRUE(name) extern struct static_key_true name
#define DECLARE_STATIC_KEY_FALSE(name) extern struct static_key_false name
#define DEFINE_STATIC_KEY_ARRAY_TRUE(name, count) \
	struct static_key_true name[count] = { [0 ...(count) - 1] = STATIC_KEY_TRUE_INIT }
#define DEFINE_STATIC_KEY_ARRAY_FALSE(name, count) struct static_key_false name[count] = { STATIC_KEY_FALSE_INIT }

static inline int static_key_count(struct static_key *key)
{
	return atomic_read(&key->enabled);
}

static inline void static_key_slow_inc(struct static_key *key)
{
	atomic_inc(&key->enabled);
}

static inline void static_key_slow_dec(struct static_key *key)
{
	WARN_ON(atomic_dec_return(&key->enabled) < 0);
}

/* A key that is enabled already keeps its count. */
static inline void static_key_enable(struct static_key *key)
{
	int is_off = 0;

	atomic_try_cmpxchg(&key->enabled, &is_off, 1);
}

static inline void static_key_disable(struct static_key *key)
{
	int is_on = 1;

	atomic_try_cmpxchg(&key->enabled, &is_on, 0);
}

#define static_key_enabled(x) (static_key_count((struct static_key *)(void *)(x)) > 0)
#define static_key_false(x) unlikely(static_key_enabled(x))
#define static_key_true(x) likely(static_key_enabled(x))
#define static_branch_likely(x) likely(static_key_enabled(&(x)->key))
#define static_branch_unlikely(x) unlikely(static_key_enabled(&(x)->key))
#define static_branch_maybe(config, x) static_key_enabled(&(x)->key)
#define static_branch_inc(x) static_key_slow_inc(&(x)->key)
#define static_branch_dec(x) static_key_slow_dec(&(x)->key)
#define static_branch_enable(x) static_key_enable(&(x)->key)
#define static_branch_disable(x) static_key_disable(&(x)->key)
#define static_branch_inc_cpuslocked(x) static_branch_inc(x)
#define static_branch_dec_cpuslocked(x) static_branch_dec(x)
#define static_branch_enable_cpuslocked(x) static_branch_enable(x)
#define static_branch_disable_cpuslocked(x) static_branch_disable(x)

#endif
