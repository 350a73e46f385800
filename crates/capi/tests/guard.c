/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * guard COMMAND...: runs a test program, and ends it if it hangs. Its exit code is that of the
 * program, or 128 plus the number of the signal that ended it, or 124 after a hang.
 *
 * A busy machine is no hang, so elapsed time alone counts for nothing. A program hangs if
 * - its threads and those of its children neither ran nor waited for a CPU for IDLE_SECONDS_MAX
 *   seconds in all: they wait for something that never happens; or
 * - they used more than CPU_SECONDS_MAX seconds of CPU time: they spin forever.
 *
 * The message has the state of each thread. It is also printed if the guard itself is ended by a
 * signal. No process of the program outlives the guard.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Far above the sleeps of all tests. */
#define IDLE_SECONDS_MAX 120
/* Far above the CPU time of the slowest test under a sanitizer. */
#define CPU_SECONDS_MAX 900
#define NS 1e9

/* Of all processes of the program's session. */
struct usage {
	/* Threads that exist: the time for which they ran, and for which they waited for a CPU. */
	double threads_ran, threads_waited;
	/* CPU time of processes, which includes that of threads and children that have ended. */
	double processes_ran;
};

static pid_t program;

static size_t read_file(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");
	size_t length;

	if (!file)
		return 0;
	length = fread(text, 1, size - 1, file);
	fclose(file);
	text[length] = '\0';
	return length;
}

static void add_thread(const char *folder, struct usage *usage)
{
	char path[512], text[128];
	unsigned long long ran, waited;

	snprintf(path, sizeof(path), "%s/schedstat", folder);
	if (read_file(path, text, sizeof(text)) && sscanf(text, "%llu %llu", &ran, &waited) == 2) {
		usage->threads_ran += (double)ran / NS;
		usage->threads_waited += (double)waited / NS;
	}
}

static void show_thread(const char *folder)
{
	char path[512], name[64] = "?", stat[512] = "?", where[128] = "?", *after_name;

	snprintf(path, sizeof(path), "%s/comm", folder);
	read_file(path, name, sizeof(name));
	name[strcspn(name, "\n")] = '\0';
	snprintf(path, sizeof(path), "%s/stat", folder);
	read_file(path, stat, sizeof(stat));
	after_name = strrchr(stat, ')');
	snprintf(path, sizeof(path), "%s/wchan", folder);
	read_file(path, where, sizeof(where));
	fprintf(stderr, "  %s %s: state %c, in %s\n", folder, name, after_name ? after_name[2] : '?', where);
}

/* Calls one of the functions for each thread of a process. */
static void each_thread(pid_t pid, struct usage *usage)
{
	char folder[64], path[400];
	struct dirent *entry;
	DIR *threads;

	snprintf(folder, sizeof(folder), "/proc/%d/task", pid);
	threads = opendir(folder);
	while (threads && (entry = readdir(threads))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (usage)
			add_thread(path, usage);
		else
			show_thread(path);
	}
	if (threads)
		closedir(threads);
}

/*
 * For each process of the program's session: adds up its usage, or shows its threads, or kills it.
 * Returns the number of processes that exist.
 */
static int each_process(struct usage *usage, int shows, int kills)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (processes && (entry = readdir(processes))) {
		unsigned long long user, system;
		long long user_of_children, system_of_children;
		char path[300], stat[1024], *after_name, state;
		pid_t pid = atoi(entry->d_name), session;

		snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
		if (pid <= 0 || !read_file(path, stat, sizeof(stat)) || !(after_name = strrchr(stat, ')')))
			continue;
		if (sscanf(after_name + 2, "%c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld", &state, &session, &user,
			   &system, &user_of_children, &system_of_children) != 6 ||
		    session != program)
			continue;
		count += state != 'Z';
		if (usage) {
			usage->processes_ran += (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
			usage->processes_ran += (double)(user_of_children + system_of_children) / (double)sysconf(_SC_CLK_TCK);
			each_thread(pid, usage);
		}
		if (shows)
			each_thread(pid, NULL);
		if (kills)
			kill(pid, SIGKILL);
	}
	if (processes)
		closedir(processes);
	return count;
}

/* Also reaps children whose parents have ended: the guard inherits them. */
static int reap(int *status)
{
	int any, is_over = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &any, WNOHANG)) > 0) {
		if (pid == program) {
			*status = any;
			is_over = 1;
		}
	}
	return is_over;
}

static void kill_all(void)
{
	int status;

	while (each_process(NULL, 0, 1))
		reap(&status);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / NS;
}

static double distance(double a, double b)
{
	return a > b ? a - b : b - a;
}

static int give_up(const char *name, const char *why, double begin, const struct usage *usage)
{
	fprintf(stderr, "%s: %s (after %.0f s, %.1f s of CPU time); its threads:\n", name, why, now() - begin, usage->processes_ran);
	each_process(NULL, 1, 0);
	kill_all();
	return 124;
}

static int watch(const char *name, const sigset_t *signals)
{
	const struct timespec second = { .tv_sec = 1 };
	struct usage before = { .threads_ran = 0 }, usage = { .threads_ran = 0 };
	double begin = now(), last = begin, idle = 0;

	for (;;) {
		int signal = sigtimedwait(signals, NULL, &second), status;
		double active, elapsed;

		if (reap(&status)) {
			kill_all();
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		if (signal > 0 && signal != SIGCHLD) {
			give_up(name, "still running when the tests were ended", begin, &usage);
			/* Its parent sees the signal, too: a shell then ends its script. */
			sigprocmask(SIG_UNBLOCK, signals, NULL);
			raise(signal);
		}
		elapsed = now() - last;
		if (elapsed < 1)
			continue;
		last += elapsed;
		usage = (struct usage){ .threads_ran = 0 };
		each_process(&usage, 0, 0);
		/* A sum that is smaller than before is progress as well: threads have ended. */
		active = distance(usage.threads_ran, before.threads_ran) + distance(usage.threads_waited, before.threads_waited) +
			 distance(usage.processes_ran, before.processes_ran);
		before = usage;
		idle += active < elapsed ? elapsed - active : 0;
		if (idle > IDLE_SECONDS_MAX)
			return give_up(name, "hangs: it waits for something that does not happen", begin, &usage);
		if (usage.processes_ran > CPU_SECONDS_MAX)
			return give_up(name, "hangs: it spins", begin, &usage);
	}
}

int main(int argc, char **argv)
{
	sigset_t signals, before;

	if (argc < 2)
		return fprintf(stderr, "usage: guard COMMAND...\n"), 2;
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, &before);
	/* A disposition that is inherited as "ignored" would reap children, or lose signals. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	program = fork();
	if (program < 0)
		return perror("fork"), 125;
	if (program == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		sigprocmask(SIG_SETMASK, &before, NULL);
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	return watch(argv[1], &signals);
}
