/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions that run soon, in parallel, on the library's unbound queue. Each call gets the next
 * cookie. A function that has to do something in the order of the calls waits for the earlier ones.
 */
#ifndef UWORK_KERNEL_LINUX_ASYNC_H
#define UWORK_KERNEL_LINUX_ASYNC_H

#include <linux/list.h>
#include <linux/types.h>
#include "../uw_kernel.h"

typedef u64 async_cookie_t;
typedef void (*async_func_t)(void *data, async_cookie_t cookie);

struct device;

struct async_domain {
	/* The calls that have not returned, in the order of their cookies. */
	struct list_head pending;
	/* Whether async_synchronize_full() waits for them. */
	unsigned int registered;
};

#define ASYNC_DOMAIN(name) struct async_domain name = { LIST_HEAD_INIT((name).pending), 1 }
#define ASYNC_DOMAIN_EXCLUSIVE(name) struct async_domain name = { LIST_HEAD_INIT((name).pending), 0 }

#ifdef __cplusplus
extern "C" {
#endif
/* Without memory the function runs before this returns. */
async_cookie_t async_schedule_node_domain(async_func_t function, void *data, int node, struct async_domain *domain) UW_KERNEL_NAME(async_schedule_node_domain);
async_cookie_t async_schedule_node(async_func_t function, void *data, int node) UW_KERNEL_NAME(async_schedule_node);
/* Waits for all calls outside of exclusive domains. */
void async_synchronize_full(void) UW_KERNEL_NAME(async_synchronize_full);
void async_synchronize_full_domain(struct async_domain *domain) UW_KERNEL_NAME(async_synchronize_full_domain);
/* Waits for the calls with a lower cookie. */
void async_synchronize_cookie(async_cookie_t cookie) UW_KERNEL_NAME(async_synchronize_cookie);
void async_synchronize_cookie_domain(async_cookie_t cookie, struct async_domain *domain) UW_KERNEL_NAME(async_synchronize_cookie_domain);
/* Whether the calling thread is in such a function. */
bool current_is_async(void) UW_KERNEL_NAME(current_is_async);
#ifdef __cplusplus
}
#endif

static inline async_cookie_t async_schedule(async_func_t function, void *data)
{
	return async_schedule_node(function, data, -1);
}

static inline async_cookie_t async_schedule_domain(async_func_t function, void *data, struct async_domain *domain)
{
	return async_schedule_node_domain(function, data, -1, domain);
}

#define async_schedule_dev(function, dev) async_schedule((function), (dev))
#define async_schedule_dev_domain(function, dev, domain) async_schedule_domain((function), (dev), (domain))

#endif
