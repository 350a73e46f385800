/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The current CPU, and calls on other CPUs. */
#ifndef UWORK_KERNEL_LINUX_SMP_H
#define UWORK_KERNEL_LINUX_SMP_H

#include <linux/cpumask.h>
#include <linux/preempt.h>

/* Outdated immediately, unless the thread is bound to one CPU. */
#define raw_smp_processor_id() uw_kernel_this_cpu()
#define smp_processor_id() uw_kernel_this_cpu()
#define get_cpu() (preempt_disable(), uw_kernel_this_cpu())
#define put_cpu() preempt_enable()

typedef void (*smp_call_func_t)(void *info);

#ifdef __cplusplus
extern "C" {
#endif
/*
 * Calls the function on that CPU, in a thread instead of an interrupt. It has returned when this
 * returns, whatever `wait` is. Returns 0 or a negative errno value.
 */
int smp_call_function_single(int cpu, smp_call_func_t function, void *info, int wait) UW_KERNEL_NAME(smp_call_function_single);
/* On each online CPU of the mask; on the caller's CPU as well if `self` is set. */
void uw_kernel_call_on(const struct cpumask *mask, smp_call_func_t function, void *info, bool self);
#ifdef __cplusplus
}
#endif

#define on_each_cpu(function, info, wait) ((void)(wait), uw_kernel_call_on(cpu_online_mask, (function), (info), true))
#define on_each_cpu_mask(mask, function, info, wait) ((void)(wait), uw_kernel_call_on((mask), (function), (info), true))
#define smp_call_function(function, info, wait) \
	((void)(wait), uw_kernel_call_on(cpu_online_mask, (function), (info), false))
#define smp_call_function_many(mask, function, info, wait) \
	((void)(wait), uw_kernel_call_on((mask), (function), (info), false))

/* On some CPU of the mask. */
static inline int smp_call_function_any(const struct cpumask *mask, smp_call_func_t function, void *info, int wait)
{
	return smp_call_function_single((int)cpumask_any_and(mask, cpu_online_mask), function, info, wait);
}

#define on_each_cpu_cond(condition, function, info, wait) \
	((void)(wait), uw_kernel_call_if((condition), (function), (info)))

static inline void uw_kernel_call_if(bool (*condition)(int cpu, void *info), smp_call_func_t function, void *info)
{
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		if (condition((int)cpu, info))
			smp_call_function_single((int)cpu, function, info, 1);
	}
}

struct uw_kernel_cpu_call {
	int (*function)(void *arg);
	void *arg;
	int result;
};

static inline void uw_kernel_run_cpu_call(void *info)
{
	struct uw_kernel_cpu_call *call = (struct uw_kernel_cpu_call *)info;

	call->result = call->function(call->arg);
}

/* Returns the function's result. The function may sleep. */
static inline int smp_call_on_cpu(unsigned int cpu, int (*function)(void *arg), void *arg, bool phys)
{
	struct uw_kernel_cpu_call call = { function, arg, 0 };
	int error = smp_call_function_single((int)cpu, uw_kernel_run_cpu_call, &call, 1);

	(void)phys;
	return error ? error : call.result;
}

#endif
