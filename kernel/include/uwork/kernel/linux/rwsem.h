/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Semaphores for several readers or one writer. */
#ifndef UWORK_KERNEL_LINUX_RWSEM_H
#define UWORK_KERNEL_LINUX_RWSEM_H

#include <linux/cleanup.h>
#include "../uw_kernel_lock.h"

struct rw_semaphore {
	struct uw_kernel_rwlock uw_lock;
};

#define __RWSEM_INITIALIZER(name) { { 0 } }
#define DECLARE_RWSEM(name) struct rw_semaphore name = __RWSEM_INITIALIZER(name)

static inline void init_rwsem(struct rw_semaphore *sem)
{
	sem->uw_lock.word = 0;
}

static inline void down_read(struct rw_semaphore *sem)
{
	uw_kernel_read_lock(&sem->uw_lock, UW_KERNEL_SLEEPS);
}

static inline int down_read_trylock(struct rw_semaphore *sem)
{
	return uw_kernel_read_trylock(&sem->uw_lock);
}

/* Signals do not end the wait here. */
static inline int down_read_interruptible(struct rw_semaphore *sem)
{
	down_read(sem);
	return 0;
}

#define down_read_killable(sem) down_read_interruptible(sem)
#define down_read_nested(sem, subclass) down_read(sem)
#define down_write_nested(sem, subclass) down_write(sem)
#define down_write_killable(sem) (down_write(sem), 0)

static inline void up_read(struct rw_semaphore *sem)
{
	uw_kernel_read_unlock(&sem->uw_lock);
}

static inline void down_write(struct rw_semaphore *sem)
{
	uw_kernel_write_lock(&sem->uw_lock, UW_KERNEL_SLEEPS);
}

static inline int down_write_trylock(struct rw_semaphore *sem)
{
	return uw_kernel_write_trylock(&sem->uw_lock);
}

static inline void up_write(struct rw_semaphore *sem)
{
	uw_kernel_write_unlock(&sem->uw_lock);
}

static inline void downgrade_write(struct rw_semaphore *sem)
{
	uw_kernel_write_unlock_to(&sem->uw_lock, 1);
}

static inline bool rwsem_is_locked(const struct rw_semaphore *sem)
{
	return (__atomic_load_n(&sem->uw_lock.word, __ATOMIC_RELAXED) & (UW_KERNEL_RW_WRITER | UW_KERNEL_RW_READERS)) != 0;
}

#define rwsem_assert_held(sem) ((void)(sem))
#define rwsem_assert_held_write(sem) ((void)(sem))

#ifndef __cplusplus
DEFINE_GUARD(rwsem_read, struct rw_semaphore *, down_read(_T), up_read(_T))
DEFINE_GUARD_COND(rwsem_read, _try, down_read_trylock(_T))
DEFINE_GUARD_COND(rwsem_read, _intr, down_read_interruptible(_T), _RET == 0)
DEFINE_GUARD(rwsem_write, struct rw_semaphore *, down_write(_T), up_write(_T))
DEFINE_GUARD_COND(rwsem_write, _try, down_write_trylock(_T))
DEFINE_GUARD_COND(rwsem_write, _kill, down_write_killable(_T), _RET == 0)
#endif

#endif
