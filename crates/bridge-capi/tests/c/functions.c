// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A handler and a function for reports that end their thread: the process ends with a message. Argument: the server's
 * address.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork-bridge.h>

#include "check.h"

static int ends_its_thread(struct uw_bridge_job *job, void *arg)
{
	(void)job;
	(void)arg;
	pthread_exit(NULL);
}

static int is_dead(struct uw_bridge_job *job, void *arg)
{
	(void)job;
	(void)arg;
	return UW_BRIDGE_DEAD;
}

static void report_ends_its_thread(const char *line, void *arg)
{
	(void)line;
	(void)arg;
	pthread_exit(NULL);
}

static void says(const char *line, void *arg)
{
	(void)arg;
	fprintf(stderr, "%s\n", line);
}

/* Runs a job in a process of its own, which ends with the message. */
static void ends_the_process(const char *server, const char *stream, uw_bridge_fn handler,
			     void (*report)(const char *line, void *arg))
{
	struct uw_bridge_handler all = { NULL, handler, NULL };
	struct uw_bridge_config config = UW_BRIDGE_CONFIG_INIT;
	struct uw_bridge_push job = { .payload = "x", .length = 1 };
	struct uw_bridge_producer *producer;
	char said[8192];
	size_t length = 0;
	ssize_t got;
	int ends[2], status;
	pid_t pid;

	config.servers = &server, config.server_count = 1;
	config.streams = &stream, config.stream_count = 1;
	config.patience = 100;
	CHECK(pipe(ends) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(dup2(ends[1], STDERR_FILENO) >= 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
		producer = uw_bridge_producer_create(&config);
		CHECK(producer && uw_bridge_push(producer, &job, 1, NULL) == 0);
		CHECK(uw_bridge_start(&config, &all, 1, report, NULL));
		for (;;)
			pause();
	}
	close(ends[1]);
	while ((got = read(ends[0], said + length, sizeof(said) - 1 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	close(ends[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	fprintf(stderr, "%s", said);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	CHECK(strstr(said, "a function of the program did not return"));
}

int main(int argc, char **argv)
{
	CHECK(argc > 1);
	ends_the_process(argv[1], "handler", ends_its_thread, says);
	ends_the_process(argv[1], "report", is_dead, report_ends_its_thread);
	puts("ok");
	return 0;
}
