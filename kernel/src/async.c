/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Asynchronous calls: items on the unbound system queue. */
#include <stdlib.h>

#include <linux/async.h>
#include <linux/bug.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include "fork.h"

struct call {
	struct work_struct work;
	/* Guard of these: the lock. In the domain's list, and in that of all calls. */
	struct list_head in_domain;
	struct list_head in_all;
	struct async_domain *domain;
	async_cookie_t cookie;
	async_func_t function;
	void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guard of these: the lock. */
static LIST_HEAD(all_calls);
static async_cookie_t next_cookie = 1;

static DECLARE_WAIT_QUEUE_HEAD(call_over);
static ASYNC_DOMAIN(default_domain);
static __thread unsigned int depth;

/* In a forked child the calls do not run, so no wait is for them. */
void uw_async_fork(enum uw_fork at)
{
	uw_fork_mutex(&lock, at);
	if (at == UW_FORK_CHILD) {
		while (!list_empty(&all_calls)) {
			struct call *call = list_first_entry(&all_calls, struct call, in_all);

			/* The thread that forked may be in one of the calls, which removes itself at its end. */
			list_del_init(&call->in_all);
			list_del_init(&call->in_domain);
		}
		init_waitqueue_head(&call_over);
	}
}

static void run(struct work_struct *work)
{
	struct call *call = container_of(work, struct call, work);

	depth++;
	call->function(call->data, call->cookie);
	depth--;
	pthread_mutex_lock(&lock);
	list_del(&call->in_domain);
	list_del(&call->in_all);
	pthread_mutex_unlock(&lock);
	free(call);
	wake_up_all(&call_over);
}

async_cookie_t async_schedule_node_domain(async_func_t function, void *data, int node, struct async_domain *domain)
{
	struct call *call = malloc(sizeof(*call));
	async_cookie_t cookie;

	uw_watch_forks();
	pthread_mutex_lock(&lock);
	cookie = next_cookie++;
	if (call) {
		INIT_WORK(&call->work, run);
		call->domain = domain;
		call->cookie = cookie;
		call->function = function;
		call->data = data;
		list_add_tail(&call->in_domain, &domain->pending);
		list_add_tail(&call->in_all, &all_calls);
	}
	pthread_mutex_unlock(&lock);
	if (!call) {
		function(data, cookie);
		return cookie;
	}
	if (!(node < 0 ? queue_work(system_dfl_wq, &call->work) : queue_work_node(node, system_dfl_wq, &call->work)))
		/* The library is shut down. */
		run(&call->work);
	return cookie;
}

async_cookie_t async_schedule_node(async_func_t function, void *data, int node)
{
	return async_schedule_node_domain(function, data, node, &default_domain);
}

/* Whether no call of the domain (NULL: of any registered one) has a lower cookie. */
static bool is_over(async_cookie_t cookie, const struct async_domain *domain)
{
	struct call *call;
	bool found = false;

	pthread_mutex_lock(&lock);
	if (domain) {
		call = list_first_entry_or_null(&domain->pending, struct call, in_domain);
		found = call && call->cookie < cookie;
	} else {
		list_for_each_entry(call, &all_calls, in_all) {
			found = call->cookie < cookie && call->domain->registered;
			if (found)
				break;
		}
	}
	pthread_mutex_unlock(&lock);
	return !found;
}

static void wait_for(async_cookie_t cookie, const struct async_domain *domain)
{
	if (uw_kernel_context() & UW_KERNEL_IN_HOOK)
		uw_kernel_bug("async_synchronize: a thread hook must not wait", __FILE__, __LINE__);
	wait_event(call_over, is_over(cookie, domain));
}

void async_synchronize_full(void)
{
	wait_for(UINT64_MAX, NULL);
}

void async_synchronize_full_domain(struct async_domain *domain)
{
	wait_for(UINT64_MAX, domain);
}

void async_synchronize_cookie(async_cookie_t cookie)
{
	wait_for(cookie, &default_domain);
}

void async_synchronize_cookie_domain(async_cookie_t cookie, struct async_domain *domain)
{
	wait_for(cookie, domain);
}

bool current_is_async(void)
{
	return depth > 0;
}
