/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* States of CPU hotplug: functions that run on each online CPU when a state is set up or removed. */
#include <linux/cpu.h>

struct state {
	/* 1 from the claim of the number until its release. Accesses are atomic. */
	uint32_t is_taken;
	uw_cpuhp_function_t startup;
	uw_cpuhp_function_t teardown;
};

static struct state states[CPUHP_ONLINE];

static bool claim(int state)
{
	return __atomic_exchange_n(&states[state].is_taken, 1, __ATOMIC_ACQUIRE) == 0;
}

static void release(int state)
{
	__atomic_store_n(&states[state].is_taken, 0, __ATOMIC_RELEASE);
}

/* The number that this state gets; a negative errno value if there is none. */
static int number_of(int state)
{
	int last = state;

	if (state == CPUHP_BP_PREPARE_DYN)
		last = CPUHP_BP_PREPARE_DYN_END;
	else if (state == CPUHP_AP_ONLINE_DYN)
		last = CPUHP_AP_ONLINE_DYN_END;
	else if (state <= CPUHP_OFFLINE || state >= CPUHP_ONLINE)
		return -EINVAL;
	for (; state <= last; state++) {
		if (claim(state))
			return state;
	}
	return last == CPUHP_BP_PREPARE_DYN_END || last == CPUHP_AP_ONLINE_DYN_END ? -ENOSPC : -EBUSY;
}

struct call {
	uw_cpuhp_function_t function;
	unsigned int cpu;
};

static int call_here(void *arg)
{
	const struct call *call = arg;

	return call->function(call->cpu);
}

/* The functions of the first states prepare a CPU from another one. */
static int call_for(int state, uw_cpuhp_function_t function, unsigned int cpu)
{
	struct call call = { function, cpu };

	if (!function)
		return 0;
	return state <= CPUHP_BP_PREPARE_DYN_END ? call_here(&call) : smp_call_on_cpu(cpu, call_here, &call, false);
}

/* For the online CPUs below `end`, from the last one. The result of a function that tears down is not used. */
static void tear_down(int state, unsigned int end)
{
	while (end-- > 0) {
		if (cpu_online(end))
			call_for(state, states[state].teardown, end);
	}
}

int uw_kernel_cpuhp_setup(int state, bool call, uw_cpuhp_function_t startup, uw_cpuhp_function_t teardown)
{
	bool is_dynamic = state == CPUHP_BP_PREPARE_DYN || state == CPUHP_AP_ONLINE_DYN;
	int number = number_of(state);
	unsigned int cpu;

	if (number < 0)
		return number;
	states[number].startup = startup;
	states[number].teardown = teardown;
	for_each_online_cpu(cpu) {
		int error = call ? call_for(number, startup, cpu) : 0;

		if (error) {
			tear_down(number, cpu);
			release(number);
			return error;
		}
	}
	return is_dynamic ? number : 0;
}

void uw_kernel_cpuhp_remove(int state, bool call)
{
	if (state <= CPUHP_OFFLINE || state >= CPUHP_ONLINE)
		return;
	if (call)
		tear_down(state, nr_cpu_ids);
	release(state);
}
