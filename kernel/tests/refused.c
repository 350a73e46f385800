// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * futex(2), which a filter refuses: each wait and each wake ends the process with a message. Without
 * it waiters would spin forever, and sleepers would never be woken. Each scene is a process of its
 * own.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/mutex.h>

#include "scene.h"

/* The system refuses futex(2) to the calling thread from now on. */
static void refuse_futexes(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { ARRAY_SIZE(filter), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		pr_err("no filter can be installed: error %d\n", errno);
		_exit(1);
	}
}

static void wait_without_limit(void)
{
	DECLARE_COMPLETION_ONSTACK(never);

	refuse_futexes();
	wait_for_completion(&never);
}

static void wait_for_some_time(void)
{
	DECLARE_COMPLETION_ONSTACK(never);

	refuse_futexes();
	wait_for_completion_timeout(&never, 10 * HZ);
}

static void lock_a_held_mutex(void)
{
	static DEFINE_MUTEX(mutex);

	mutex_lock(&mutex);
	refuse_futexes();
	mutex_lock(&mutex);
}

static DECLARE_COMPLETION(often);

static int wait_often(void *data)
{
	(void)data;
	for (;;)
		wait_for_completion(&often);
	return 0;
}

static void wake_a_sleeper(void)
{
	struct task_struct *sleeper = kthread_run(wait_often, NULL, "sleeper");
	unsigned int pause, spins = 1;

	if (IS_ERR(sleeper))
		_exit(1);
	refuse_futexes();
	/*
	 * The other thread takes what is completed and sleeps soon after, unless more is completed before: so this one
	 * waits until all is taken, and for longer each time.
	 */
	for (;;) {
		complete(&often);
		while (completion_done(&often))
			cpu_relax();
		for (pause = 0; pause < spins; pause++)
			cpu_relax();
		spins = spins < 1u << 24 ? spins * 2 : 1;
	}
}

static void check(const char *name, void (*scene)(void))
{
	check_abort(name, scene, "uwork: futex(2) is refused (Operation not permitted)");
}

static int __init refused_init(void)
{
	check("a wait without a limit", wait_without_limit);
	check("a wait with a limit", wait_for_some_time);
	check("a wait for a mutex", lock_a_held_mutex);
	check("a wake", wake_a_sleeper);
	return checked();
}

module_init(refused_init)
MODULE_LICENSE("GPL");
