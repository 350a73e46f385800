/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counters of one CPU's data. Atomic here, because the thread may be preempted and migrate. */
#ifndef UWORK_KERNEL_ASM_LOCAL_H
#define UWORK_KERNEL_ASM_LOCAL_H

#include <linux/atomic.h>
#include <linux/percpu.h>

typedef struct {
	atomic_long_t a;
} local_t;

#define LOCAL_INIT(i) { ATOMIC_LONG_INIT(i) }
#define local_read(l) atomic_long_read(&(l)->a)
#define local_set(l, i) atomic_long_set(&(l)->a, (i))
#define local_inc(l) atomic_long_inc(&(l)->a)
#define local_dec(l) atomic_long_dec(&(l)->a)
#define local_add(i, l) atomic_long_add((i), &(l)->a)
#define local_sub(i, l) atomic_long_sub((i), &(l)->a)
#define local_add_return(i, l) atomic_long_add_return((i), &(l)->a)
#define local_sub_return(i, l) atomic_long_sub_return((i), &(l)->a)
#define local_inc_return(l) atomic_long_inc_return(&(l)->a)
#define local_dec_return(l) atomic_long_dec_return(&(l)->a)
#define local_sub_and_test(i, l) atomic_long_sub_and_test((i), &(l)->a)
#define local_dec_and_test(l) atomic_long_dec_and_test(&(l)->a)
#define local_inc_and_test(l) atomic_long_inc_and_test(&(l)->a)
#define local_add_negative(i, l) atomic_long_add_negative((i), &(l)->a)
#define local_cmpxchg(l, old, with) atomic_long_cmpxchg(&(l)->a, (old), (with))
#define local_try_cmpxchg(l, oldp, with) atomic_long_try_cmpxchg(&(l)->a, (oldp), (with))
#define local_xchg(l, with) atomic_long_xchg(&(l)->a, (with))
#define local_add_unless(l, i, unless) atomic_long_add_unless(&(l)->a, (i), (unless))
#define local_inc_not_zero(l) atomic_long_inc_not_zero(&(l)->a)
#define __local_inc(l) local_inc(l)
#define __local_dec(l) local_dec(l)
#define __local_add(i, l) local_add(i, l)
#define __local_sub(i, l) local_sub(i, l)

#endif
