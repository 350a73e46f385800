// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The variable `jiffies`: in a program with much data for each thread, in a forked child, and where no thread can be
 * created.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <linux/delay.h>
#include <linux/jiffies.h>

#include "scene.h"

/* More than the smallest stack. */
static __thread volatile char data_of_each_thread[512 << 10];

static bool refused;
module_param(refused, bool, 0);

/* Without a call of the library. */
static void wait_for_ticks(void)
{
	unsigned long end = jiffies + 3;

	data_of_each_thread[0]++;
	while (time_before(jiffies, end))
		cpu_relax();
}

static unsigned int threads_at_handler;

static void note_threads(void)
{
	struct stat tasks;

	/* A folder has a link for each folder in it, and two more. */
	threads_at_handler = stat("/proc/self/task", &tasks) == 0 ? (unsigned int)tasks.st_nlink - 2 : 0;
}

/* As an allocator that is loaded behind the library: the child releases its locks in this handler. */
__attribute__((constructor(101))) static void register_as_allocator(void)
{
	pthread_atfork(NULL, NULL, note_threads);
}

static void in_child(void)
{
	failed = 0;
	/* No handler has created a thread, hence allocated memory, before this one. */
	CHECK(threads_at_handler == 1);
	wait_for_ticks();
	_exit(failed);
}

/* The system refuses threads to this process from now on. */
static void refuse_threads(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { ARRAY_SIZE(filter), filter };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void run_again_without_threads(void)
{
	refuse_threads();
	execl("/proc/self/exe", "ticks", "refused", NULL);
	_exit(127);
}

static void sleep_without_threads(void)
{
	unsigned long begin = jiffies;

	msleep(5);
	CHECK(time_after_eq(jiffies, begin + 5));
}

static int __init ticks_init(void)
{
	if (refused) {
		sleep_without_threads();
		return checked();
	}
	wait_for_ticks();
	if (CAN_FORK_WITH_THREADS) {
		CHECK(status_of("a forked child", in_child) == 0);
		CHECK(status_of("no threads", run_again_without_threads) == 0);
		CHECK(strstr(said, "uwork: no thread for jiffies"));
	}
	return checked();
}

module_init(ticks_init)
MODULE_LICENSE("GPL");
