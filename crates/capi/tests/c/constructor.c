/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A shared object whose constructor waits for an item. While constructors run, dlopen() holds a lock
 * of the dynamic linker, so a worker that took it would wait for the constructor. With PLUGIN defined
 * this is the shared object, otherwise the program that loads it: its argument is the path.
 */
#ifdef PLUGIN
#include <semaphore.h>
#include <stddef.h>

#include <uwork.h>

static sem_t ran;
int is_constructed;

static void on_work(struct uw_work *work)
{
	(void)work;
	sem_post(&ran);
}

/* A flush could run the item on this thread: only a worker posts while this thread waits here. */
__attribute__((constructor)) static void construct(void)
{
	struct uw_queue *queue = uw_queue_create("constructor", 0, 0);
	static struct uw_work item;

	if (queue == NULL || sem_init(&ran, 0, 0) != 0)
		return;
	uw_work_init(&item, on_work);
	if (uw_queue_work(queue, &item) < 0)
		return;
	while (sem_wait(&ran) != 0)
		;
	uw_queue_destroy(queue);
	is_constructed = 1;
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
