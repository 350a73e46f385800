/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A spin lock in one bit of a word. Spins briefly and then sleeps, as all spin locks here. */
#ifndef UWORK_KERNEL_LINUX_BIT_SPINLOCK_H
#define UWORK_KERNEL_LINUX_BIT_SPINLOCK_H

#include <linux/bitops.h>
#include <linux/preempt.h>
#include "../uw_kernel.h"

#define UW_BIT_SPIN_SLEEP_NS 50000

static inline int bit_spin_trylock(int bit, unsigned long *addr)
{
	return !test_and_set_bit_lock((unsigned long)bit, addr);
}

static inline void bit_spin_lock(int bit, unsigned long *addr)
{
	const uint32_t never = 0;
	int spins = 0;

	while (!bit_spin_trylock(bit, addr)) {
		/* The holder may be preempted, and the word has no room for a mark of sleepers. */
		if (++spins < 100)
			cpu_relax();
		else
			uw_kernel_wait_unseen(&never, 0, UW_BIT_SPIN_SLEEP_NS);
	}
}

static inline void bit_spin_unlock(int bit, unsigned long *addr)
{
	clear_bit_unlock((unsigned long)bit, addr);
}

#define __bit_spin_unlock(bit, addr) bit_spin_unlock((bit), (addr))

static inline int bit_spin_is_locked(int bit, unsigned long *addr)
{
	return test_bit((unsigned long)bit, addr);
}

#endif
