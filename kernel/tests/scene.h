/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Scenes that end their process: each is a process of its own. */
#ifndef TESTS_KERNEL_SCENE_H
#define TESTS_KERNEL_SCENE_H

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char said[4096];

/* Runs a scene in a child. Its messages are in `said` then. Returns the status of waitpid(). */
static int status_of(const char *name, void (*scene)(void))
{
	size_t length = 0;
	ssize_t got;
	int ends[2], status;
	pid_t child;

	/* If the scene hangs, this is the last line. */
	pr_info("%s\n", name);
	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		scene();
		_exit(0);
	}
	close(ends[1]);
	while ((got = read(ends[0], said + length, sizeof(said) - 1 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	close(ends[0]);
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

/* The scene calls abort(), after a message with these words. */
static inline void check_abort(const char *name, void (*scene)(void), const char *words)
{
	int status = status_of(name, scene);

	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, words)) {
		pr_err("%s ended with status %#x: %s\n", name, status, said);
		failed++;
	}
}

#endif
