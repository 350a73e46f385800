/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Callbacks of CPU hotplug. The online CPUs of a process do not change, so that a state calls its
 * functions when it is set up and when it is removed, on each online CPU, and at no other time.
 */
#ifndef UWORK_KERNEL_LINUX_CPUHOTPLUG_H
#define UWORK_KERNEL_LINUX_CPUHOTPLUG_H

#include <linux/errno.h>
#include <linux/types.h>

#include "../uw_kernel.h"

/* The states that a module may use: its functions run on the caller's CPU, or on each CPU. */
enum cpuhp_state {
	CPUHP_INVALID = -1,
	CPUHP_OFFLINE = 0,
	CPUHP_BP_PREPARE_DYN = 1,
	CPUHP_BP_PREPARE_DYN_END = 20,
	CPUHP_AP_ONLINE_DYN = 21,
	CPUHP_AP_ONLINE_DYN_END = 60,
	CPUHP_ONLINE = 61
};

#ifdef __cplusplus
extern "C" {
#endif
/*
 * 0, or the number of the state if it is one of the two _DYN states; a negative errno value if
 * there is no free one, or a function failed. Then the CPUs that were set up have been torn down.
 */
int uw_kernel_cpuhp_setup(int state, bool call, int (*startup)(unsigned int cpu), int (*teardown)(unsigned int cpu));
void uw_kernel_cpuhp_remove(int state, bool call);
#ifdef __cplusplus
}
#endif

typedef int (*uw_cpuhp_function_t)(unsigned int cpu);

#define UW_CPUHP_SETUP(name, call) \
	static inline int name(enum cpuhp_state state, const char *what, uw_cpuhp_function_t startup, \
			       uw_cpuhp_function_t teardown) \
	{ \
		(void)what; \
		return uw_kernel_cpuhp_setup((int)state, (call), startup, teardown); \
	}
UW_CPUHP_SETUP(cpuhp_setup_state, true)
UW_CPUHP_SETUP(cpuhp_setup_state_cpuslocked, true)
UW_CPUHP_SETUP(cpuhp_setup_state_nocalls, false)
UW_CPUHP_SETUP(cpuhp_setup_state_nocalls_cpuslocked, false)

#define UW_CPUHP_REMOVE(name, call) \
	static inline void name(enum cpuhp_state state) \
	{ \
		uw_kernel_cpuhp_remove((int)state, (call)); \
	}
UW_CPUHP_REMOVE(cpuhp_remove_state, true)
UW_CPUHP_REMOVE(cpuhp_remove_state_nocalls, false)
UW_CPUHP_REMOVE(cpuhp_remove_state_nocalls_cpuslocked, false)

#endif
