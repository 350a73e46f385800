/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's types. Includes the system's header of the same name. */
#ifndef UWORK_KERNEL_LINUX_TYPES_H
#define UWORK_KERNEL_LINUX_TYPES_H

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/compiler.h>

/* <sys/types.h> declares functions as well, such as select(). stdint.h has defined __GLIBC__. */
#if defined(__GLIBC__) && !defined(__cplusplus)
#include <bits/types.h>
typedef __blkcnt_t blkcnt_t;
typedef __caddr_t caddr_t;
typedef __clock_t clock_t;
typedef __clockid_t clockid_t;
typedef __daddr_t daddr_t;
typedef __dev_t dev_t;
typedef __gid_t gid_t;
typedef __ino_t ino_t;
typedef __key_t key_t;
typedef __mode_t mode_t;
typedef __nlink_t nlink_t;
typedef __off_t off_t;
typedef __pid_t pid_t;
typedef __ssize_t ssize_t;
typedef __suseconds_t suseconds_t;
typedef __time_t time_t;
typedef __timer_t timer_t;
typedef __u_char u_char;
typedef __u_int u_int;
typedef __u_long u_long;
typedef __u_short u_short;
typedef __uid_t uid_t;
typedef __uint8_t u_int8_t;
typedef __uint16_t u_int16_t;
typedef __uint32_t u_int32_t;
typedef __uint64_t u_int64_t;
#else
#include <sys/types.h>
#endif

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

/* The system defines these too, but not under every standard. */
typedef __loff_t loff_t;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef unsigned char unchar;

typedef unsigned int gfp_t;
typedef unsigned int fmode_t;
typedef unsigned short umode_t;
typedef u64 phys_addr_t;
typedef u64 dma_addr_t;
typedef u64 sector_t;
typedef unsigned long pgoff_t;
typedef phys_addr_t resource_size_t;
typedef s64 ktime_t;
typedef s64 time64_t;
typedef unsigned int slab_flags_t;
typedef unsigned long irq_hw_number_t;

typedef int (*cmp_r_func_t)(const void *a, const void *b, const void *priv);
typedef int (*cmp_func_t)(const void *a, const void *b);
typedef void (*swap_r_func_t)(void *a, void *b, int size, const void *priv);
typedef void (*swap_func_t)(void *a, void *b, int size);

struct rcu_head;
typedef void (*rcu_callback_t)(struct rcu_head *head);
typedef void (*call_rcu_func_t)(struct rcu_head *head, rcu_callback_t func);

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

#define ATOMIC_INIT(i) { (i) }
#define ATOMIC64_INIT(i) { (i) }

typedef struct {
	long counter;
} atomic_long_t;

#define ATOMIC_LONG_INIT(i) { (i) }

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next, **pprev;
};

struct hlist_head {
	struct hlist_node *first;
};

struct cpumask;
struct task_struct;
struct module;

#define DECLARE_BITMAP(name, bits) unsigned long name[BITS_TO_LONGS(bits)]
#ifndef BITS_PER_BYTE
#define BITS_PER_BYTE 8
#endif
#ifndef BITS_TO_LONGS
#define BITS_TO_LONGS(bits) (((bits) + 8 * sizeof(long) - 1) / (8 * sizeof(long)))
#endif

#endif
