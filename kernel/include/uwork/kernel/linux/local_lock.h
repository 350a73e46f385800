/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Locks that protect a CPU's data from other code on that CPU. Interrupts and preemption cannot be
 * disabled here, so each CPU has a real lock. A thread that holds one may migrate; until it
 * unlocks, smp_processor_id() and this_cpu_ptr() refer to the CPU whose lock it holds.
 */
#ifndef UWORK_KERNEL_LINUX_LOCAL_LOCK_H
#define UWORK_KERNEL_LINUX_LOCAL_LOCK_H

#include <linux/pwlocks.h>

typedef struct {
	pw_lock_t uw_lock;
} local_lock_t;

typedef local_lock_t local_trylock_t;

#define INIT_LOCAL_LOCK(name) { { 0 } }
#define INIT_LOCAL_TRYLOCK(name) INIT_LOCAL_LOCK(name)
/* Initialises one CPU's lock. Zero bytes are a valid lock, too. */
#define local_lock_init(lock) pw_lock_init(&(lock)->uw_lock)
#define local_trylock_init(lock) local_lock_init(lock)

#define local_lock(lock) pw_lock_local(&(lock)->uw_lock)
#define local_unlock(lock) pw_unlock_local(&(lock)->uw_lock)
#define local_trylock(lock) pw_trylock_local(&(lock)->uw_lock)
#define local_lock_irq(lock) local_lock(lock)
#define local_unlock_irq(lock) local_unlock(lock)
#define local_lock_irqsave(lock, flags) ((flags) = 0, local_lock(lock))
#define local_unlock_irqrestore(lock, flags) ((void)(flags), local_unlock(lock))
#define local_trylock_irqsave(lock, flags) ((flags) = 0, local_trylock(lock))
#define local_lock_nested_bh(lock) local_lock(lock)
#define local_unlock_nested_bh(lock) local_unlock(lock)

#ifndef __cplusplus
DEFINE_GUARD(local_lock, local_lock_t *, local_lock(_T), local_unlock(_T))
DEFINE_GUARD(local_lock_irq, local_lock_t *, local_lock(_T), local_unlock(_T))
DEFINE_GUARD(local_lock_irqsave, local_lock_t *, local_lock(_T), local_unlock(_T))
DEFINE_GUARD(local_lock_nested_bh, local_lock_t *, local_lock(_T), local_unlock(_T))
#endif

#endif
