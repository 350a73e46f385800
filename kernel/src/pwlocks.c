/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Locks in per-CPU data, taken in the process's mode. */
#include <errno.h>

#include <linux/bug.h>
#include <linux/pwlocks.h>

#include "held_cpu.h"

_Static_assert(sizeof(struct pw_struct) == sizeof(struct uw_percpu_work), "an item is an item");

/* The locks of all CPUs. Keep identical to crates/capi/src/kernel/locks.rs. */
struct uw_locks {
	void *first;
	size_t stride;
	unsigned int count;
};

/* Both return the CPU, or a negative errno value. */
int uw_locks_lock_here(struct uw_locks locks);
int uw_locks_try_here(struct uw_locks locks);
/* These return 0, or a negative errno value. */
int uw_locks_lock(struct uw_locks locks, unsigned int cpu);
int uw_locks_try(struct uw_locks locks, unsigned int cpu);
int uw_locks_unlock(struct uw_locks locks, unsigned int cpu);
bool uw_locks_is_held(struct uw_locks locks);

static struct uw_locks locks_of(void *first)
{
	struct uw_locks locks = { first, UW_KERNEL_PERCPU_UNIT, uw_kernel_nr_cpus() };

	return locks;
}

/* Reports a misuse and aborts. The kernel would hang here, or continue with a corrupt lock. */
static void check(int error, const char *function)
{
	if (unlikely(error < 0))
		uw_kernel_bug(error == -EDEADLK ? "the caller already holds this per-CPU lock" : uw_error_text(), function, 0);
}

/*
 * The locks that the thread took by a _local function, for which its CPU is held: the first lock of
 * each row. Those beyond the limit are only counted.
 */
#define NOTED 16

static __thread struct {
	void *rows[NOTED];
	unsigned int noted, beyond;
} local;

static void hold(void *first, int cpu)
{
	if (local.noted < NOTED)
		local.rows[local.noted++] = first;
	else
		local.beyond++;
	uw_kernel_hold_cpu(cpu);
}

/* Removes the record of a lock. Returns whether one existed. */
static bool drop_record(void *first)
{
	unsigned int i;

	for (i = local.noted; i-- > 0;) {
		if (local.rows[i] == first) {
			local.rows[i] = local.rows[--local.noted];
			uw_kernel_let_cpu_go();
			return true;
		}
	}
	return false;
}

/*
 * Whether a trylock succeeded. The holder may be the caller itself, so EDEADLK is no misuse here.
 */
static bool taken(int error, const char *function)
{
	if (error != -EBUSY && error != -EDEADLK)
		check(error, function);
	return error >= 0;
}

void uw_kernel_pw_lock(void *first, int cpu)
{
	check(uw_locks_lock(locks_of(first), (unsigned int)cpu), "pw_lock");
}

bool uw_kernel_pw_trylock(void *first, int cpu)
{
	return taken(uw_locks_try(locks_of(first), (unsigned int)cpu), "pw_trylock");
}

void uw_kernel_pw_unlock(void *first, int cpu)
{
	check(uw_locks_unlock(locks_of(first), (unsigned int)cpu), "pw_unlock");
	/*
	 * The kernel allows this mix: with pwlocks=0 it does not distinguish the two ways to take a
	 * lock.
	 */
	if (unlikely(uw_kernel_is_cpu_held()) && uw_kernel_this_cpu() == cpu)
		drop_record(first);
}

void uw_kernel_pw_lock_local(void *first)
{
	struct uw_locks locks = locks_of(first);
	int cpu;

	if (uw_kernel_is_cpu_held()) {
		cpu = uw_kernel_this_cpu();
		check(uw_locks_lock(locks, (unsigned int)cpu), "pw_lock_local");
	} else {
		cpu = uw_locks_lock_here(locks);
		check(cpu, "pw_lock_local");
	}
	hold(first, cpu);
}

bool uw_kernel_pw_trylock_local(void *first)
{
	struct uw_locks locks = locks_of(first);
	int cpu;

	if (uw_kernel_is_cpu_held()) {
		cpu = uw_kernel_this_cpu();
		if (!taken(uw_locks_try(locks, (unsigned int)cpu), "pw_trylock_local"))
			return false;
	} else {
		cpu = uw_locks_try_here(locks);
		if (!taken(cpu, "pw_trylock_local"))
			return false;
	}
	hold(first, cpu);
	return true;
}

void uw_kernel_pw_unlock_local(void *first)
{
	if (unlikely(!uw_kernel_is_cpu_held()))
		uw_kernel_bug("the caller holds no lock that it took by a _local function", "pw_unlock_local", 0);
	check(uw_locks_unlock(locks_of(first), (unsigned int)uw_kernel_this_cpu()), "pw_unlock_local");
	if (drop_record(first))
		return;
	if (unlikely(local.beyond == 0))
		uw_kernel_bug("this lock was taken by a function with a cpu argument", "pw_unlock_local", 0);
	local.beyond--;
	uw_kernel_let_cpu_go();
}

bool uw_kernel_pw_is_held(void *first)
{
	return uw_locks_is_held(locks_of(first));
}
