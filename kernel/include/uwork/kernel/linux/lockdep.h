/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Lock checking: the assertions that are possible here. */
#ifndef UWORK_KERNEL_LINUX_LOCKDEP_H
#define UWORK_KERNEL_LINUX_LOCKDEP_H

#include <linux/compiler.h>

struct lock_class_key {
	char unused;
};

struct lockdep_map {
	char unused;
};

#define lockdep_assert_held(lock) ((void)(lock))
#define lockdep_assert_not_held(lock) ((void)(lock))
#define lockdep_is_held(lock) true
#define lockdep_set_class(lock, key) ((void)(lock))
#define lockdep_register_key(key) ((void)(key))
#define lockdep_unregister_key(key) ((void)(key))
#define lock_map_acquire(map) ((void)(map))
#define lock_map_release(map) ((void)(map))
#define lockdep_init_map(map, name, key, subclass) ((void)(map))
#define might_lock(lock) ((void)(lock))

#define lockdep_assert(condition) ((void)(condition))
#define lockdep_assert_once(condition) ((void)(condition))
#define lockdep_assert_held_read(lock) ((void)(lock))
#define lockdep_assert_held_write(lock) ((void)(lock))
#define lockdep_assert_held_once(lock) ((void)(lock))
#define lockdep_assert_none_held_once() ((void)0)
#define lockdep_set_class_and_name(lock, key, name) ((void)(lock))
#define lockdep_set_subclass(lock, subclass) ((void)(lock))
#define might_lock_nested(lock, subclass) ((void)(lock))

/* Interrupts and preemption are not disabled here, so that these are always right. */
#define lockdep_assert_irqs_disabled() ((void)0)
#define lockdep_assert_irqs_enabled() ((void)0)
#define lockdep_assert_in_softirq() ((void)0)
#define lockdep_assert_preemption_disabled() ((void)0)
#define lockdep_assert_preemption_enabled() ((void)0)
#define lockdep_off() ((void)0)
#define lockdep_on() ((void)0)

#endif
