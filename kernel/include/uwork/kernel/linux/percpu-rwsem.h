/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Reader-writer semaphores for rare writers. Here a reader takes the same word as with
 * linux/rwsem.h: readers are not cheaper, but the rules are the same.
 */
#ifndef UWORK_KERNEL_LINUX_PERCPU_RWSEM_H
#define UWORK_KERNEL_LINUX_PERCPU_RWSEM_H

#include <linux/rwsem.h>

struct percpu_rw_semaphore {
	struct rw_semaphore uw_sem;
};

#define __PERCPU_RWSEM_INITIALIZER(name) { __RWSEM_INITIALIZER((name).uw_sem) }
#define DEFINE_PERCPU_RWSEM(name) struct percpu_rw_semaphore name = __PERCPU_RWSEM_INITIALIZER(name)
#define DEFINE_STATIC_PERCPU_RWSEM(name) static struct percpu_rw_semaphore name = __PERCPU_RWSEM_INITIALIZER(name)

/* Returns 0. */
static inline int percpu_init_rwsem(struct percpu_rw_semaphore *sem)
{
	init_rwsem(&sem->uw_sem);
	return 0;
}

static inline void percpu_free_rwsem(struct percpu_rw_semaphore *sem)
{
	(void)sem;
}

static inline void percpu_down_read(struct percpu_rw_semaphore *sem)
{
	down_read(&sem->uw_sem);
}

static inline bool percpu_down_read_trylock(struct percpu_rw_semaphore *sem)
{
	return down_read_trylock(&sem->uw_sem);
}

static inline void percpu_up_read(struct percpu_rw_semaphore *sem)
{
	up_read(&sem->uw_sem);
}

static inline void percpu_down_write(struct percpu_rw_semaphore *sem)
{
	down_write(&sem->uw_sem);
}

static inline void percpu_up_write(struct percpu_rw_semaphore *sem)
{
	up_write(&sem->uw_sem);
}

static inline bool percpu_is_write_locked(struct percpu_rw_semaphore *sem)
{
	return (__atomic_load_n(&sem->uw_sem.uw_lock.word, __ATOMIC_RELAXED) & UW_KERNEL_RW_WRITER) != 0;
}

static inline bool percpu_is_read_locked(struct percpu_rw_semaphore *sem)
{
	return rwsem_is_locked(&sem->uw_sem) && !percpu_is_write_locked(sem);
}

static inline bool percpu_rwsem_is_held(struct percpu_rw_semaphore *sem)
{
	return rwsem_is_locked(&sem->uw_sem);
}

#define percpu_rwsem_assert_held(sem) ((void)(sem))

#ifndef __cplusplus
DEFINE_GUARD(percpu_read, struct percpu_rw_semaphore *, percpu_down_read(_T), percpu_up_read(_T))
DEFINE_GUARD_COND(percpu_read, _try, percpu_down_read_trylock(_T))
DEFINE_GUARD(percpu_write, struct percpu_rw_semaphore *, percpu_down_write(_T), percpu_up_write(_T))
#endif

#endif
