/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A shared object whose constructor waits for an item, and for another thread's dump. While constructors run, dlopen() holds a lock
 * of the dynamic linker, so a worker that took it would wait for the constructor, and a thread that describes the
 * queues as well. A fork in the constructor waits for that thread. With PLUGIN defined
 * this is the shared object, otherwise the program that loads it: its argument is the path.
 */
#ifdef PLUGIN
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uwork.h>

static sem_t ran, may_end;
int is_constructed;

static void on_work(struct uw_work *work)
{
	(void)work;
	sem_post(&ran);
	while (sem_wait(&may_end) != 0)
		;
}

/* With the item's function, whose name is looked up. */
static void *dumps(void *is_found)
{
	char *text = uw_dump();

	*(int *)is_found = text && strstr(text, "constructor");
	uw_string_free(text);
	return NULL;
}

static int is_dumped(void)
{
	pthread_t thread;
	int is_found = 0, status;
	pid_t child;

	if (pthread_create(&thread, NULL, dumps, &is_found) != 0)
		return 0;
	child = fork();
	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		return 0;
	return pthread_join(thread, NULL) == 0 && is_found;
}

/* A flush could run the item on this thread: only a worker posts while this thread waits here. */
__attribute__((constructor)) static void construct(void)
{
	struct uw_queue *queue = uw_queue_create("constructor", 0, 0);
	static struct uw_work item;

	if (queue == NULL || sem_init(&ran, 0, 0) != 0 || sem_init(&may_end, 0, 0) != 0)
		return;
	uw_work_init(&item, on_work);
	if (uw_queue_work(queue, &item) < 0)
		return;
	while (sem_wait(&ran) != 0)
		;
	is_constructed = is_dumped();
	sem_post(&may_end);
	uw_queue_destroy(queue);
}
#else
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	const int *is_constructed = plugin ? dlsym(plugin, "is_constructed") : NULL;

	if (!plugin)
		fprintf(stderr, "%s\n", dlerror());
	return is_constructed && *is_constructed ? 0 : 1;
}
#endif
