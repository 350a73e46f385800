/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reference counts that are killed. Here references are counted in one word: they are not cheaper
 * than those of linux/refcount.h, but the rules are the same.
 */
#ifndef UWORK_KERNEL_LINUX_PERCPU_REFCOUNT_H
#define UWORK_KERNEL_LINUX_PERCPU_REFCOUNT_H

#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/rcupdate.h>
#include <linux/types.h>

struct percpu_ref;
typedef void (percpu_ref_func_t)(struct percpu_ref *ref);

enum {
	PERCPU_REF_INIT_ATOMIC = 1 << 0,
	PERCPU_REF_INIT_DEAD = 1 << 1,
	PERCPU_REF_ALLOW_REINIT = 1 << 2
};

struct percpu_ref {
	/* Twice the number of references, and the lowest bit: killed. */
	u64 uw_word;
	percpu_ref_func_t *uw_release;
};

#define UW_REF_DEAD 1ull
#define UW_REF_ONE 2ull

/* One reference, the initial one; none if it begins dead. Returns 0. */
static inline int percpu_ref_init(struct percpu_ref *ref, percpu_ref_func_t *release, unsigned int flags, gfp_t gfp)
{
	(void)gfp;
	ref->uw_word = flags & PERCPU_REF_INIT_DEAD ? UW_REF_DEAD : UW_REF_ONE;
	ref->uw_release = release;
	return 0;
}

static inline void percpu_ref_exit(struct percpu_ref *ref)
{
	(void)ref;
}

static inline void percpu_ref_get_many(struct percpu_ref *ref, unsigned long nr)
{
	__atomic_fetch_add(&ref->uw_word, nr * UW_REF_ONE, __ATOMIC_RELAXED);
}

static inline void percpu_ref_get(struct percpu_ref *ref)
{
	percpu_ref_get_many(ref, 1);
}

/* Takes references unless the word has one of these bits, or counts none. */
static inline bool uw_percpu_ref_tryget(struct percpu_ref *ref, unsigned long nr, u64 unless)
{
	u64 word = __atomic_load_n(&ref->uw_word, __ATOMIC_RELAXED);

	do {
		if ((word & unless) || word < UW_REF_ONE)
			return false;
	} while (!__atomic_compare_exchange_n(&ref->uw_word, &word, word + nr * UW_REF_ONE, true, __ATOMIC_ACQUIRE,
					      __ATOMIC_RELAXED));
	return true;
}

static inline bool percpu_ref_tryget_many(struct percpu_ref *ref, unsigned long nr)
{
	return uw_percpu_ref_tryget(ref, nr, 0);
}

static inline bool percpu_ref_tryget(struct percpu_ref *ref)
{
	return uw_percpu_ref_tryget(ref, 1, 0);
}

/* Fails once the count is killed. */
static inline bool percpu_ref_tryget_live(struct percpu_ref *ref)
{
	return uw_percpu_ref_tryget(ref, 1, UW_REF_DEAD);
}

#define percpu_ref_tryget_live_rcu(ref) percpu_ref_tryget_live(ref)

/* Calls the release function for the last reference. */
static inline void percpu_ref_put_many(struct percpu_ref *ref, unsigned long nr)
{
	if (__atomic_sub_fetch(&ref->uw_word, nr * UW_REF_ONE, __ATOMIC_ACQ_REL) < UW_REF_ONE)
		ref->uw_release(ref);
}

static inline void percpu_ref_put(struct percpu_ref *ref)
{
	percpu_ref_put_many(ref, 1);
}

/* After it, percpu_ref_tryget_live() fails; the function is called then. Drops the initial reference. */
static inline void percpu_ref_kill_and_confirm(struct percpu_ref *ref, percpu_ref_func_t *confirm)
{
	__atomic_fetch_or(&ref->uw_word, UW_REF_DEAD, __ATOMIC_SEQ_CST);
	if (confirm)
		confirm(ref);
	percpu_ref_put(ref);
}

static inline void percpu_ref_kill(struct percpu_ref *ref)
{
	percpu_ref_kill_and_confirm(ref, NULL);
}

/* Takes the initial reference again. */
static inline void percpu_ref_resurrect(struct percpu_ref *ref)
{
	percpu_ref_get(ref);
	__atomic_fetch_and(&ref->uw_word, ~UW_REF_DEAD, __ATOMIC_SEQ_CST);
}

static inline void percpu_ref_reinit(struct percpu_ref *ref)
{
	percpu_ref_resurrect(ref);
}

static inline bool percpu_ref_is_dying(struct percpu_ref *ref)
{
	return (__atomic_load_n(&ref->uw_word, __ATOMIC_ACQUIRE) & UW_REF_DEAD) != 0;
}

static inline bool percpu_ref_is_zero(struct percpu_ref *ref)
{
	return __atomic_load_n(&ref->uw_word, __ATOMIC_ACQUIRE) < UW_REF_ONE;
}

/* There is one mode only. */
static inline void percpu_ref_switch_to_atomic(struct percpu_ref *ref, percpu_ref_func_t *confirm)
{
	if (confirm)
		confirm(ref);
}

static inline void percpu_ref_switch_to_atomic_sync(struct percpu_ref *ref)
{
	(void)ref;
}

static inline void percpu_ref_switch_to_percpu(struct percpu_ref *ref)
{
	(void)ref;
}

#endif
