/*
 * Readers of liburcu in work items. Build it:
 * cc liburcu.c $(pkg-config --cflags --libs uwork liburcu)
 *
 * With the argument "unregistered" no thread is registered, to show what that costs.
 *
 * - Hooks that are added late are called by each thread before its next item. For the items of some queues only:
 *   uw_thread_hooks_add_lazy(), and uw_queue_add_thread_hooks() for each queue.
 * - A thread of the program that has run an item stays registered until it ends. That delays no grace period, except
 *   in the flavour qsbr. Where registrations must end, as before an unload, uw_thread_hooks_remove_sync() returns the
 *   number of threads of the program that are still registered.
 * - Flavour qsbr: sleeping registered threads delay every grace period. The start hook calls rcu_thread_offline();
 *   rcu_thread_online() and rcu_thread_offline() enclose each read side.
 * - Flavour bp needs no hooks: a thread is registered at its first read side.
 * - In a forked child urcu_bp_after_fork_child() removes the parent's workers; the other flavours expect a child that
 *   executes a program.
 * - An item that blocks inside a read side delays the grace period; the pool gives its CPU to other items.
 * - With -D_LGPL_SOURCE -DDEBUG_RCU an inline rcu_read_lock() asserts that its thread is registered. Code compiled
 *   without these macros is not checked.
 */
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <urcu.h>
#include <uwork.h>

/* How long the reader stays inside to see whether the grace period ends. */
#define PATIENCE_NS (100 * 1000 * 1000L)

struct setting {
	int value;
	struct rcu_head head;
	struct uw_work reclaim;
};

static struct setting first = { .value = 1 }, second = { .value = 2 };
static struct setting *current_setting = &first;
static sem_t reader_is_inside, grace_period_ended, reclaimed;
static struct uw_queue *queue;
static int value_read;
static bool registers = true, overtaken;

/* liburcu does not count: a thread that joins an item may run it, and may be registered by the program. */
static __thread int needed;

static void enter(void)
{
	if (needed++ == 0)
		rcu_register_thread();
}

static void leave(void)
{
	if (--needed == 0)
		rcu_unregister_thread();
}

/* Every thread that runs items registers with liburcu, and leaves it when it ends. */
static void *register_thread(const struct uw_thread *thread, void *arg)
{
	(void)thread, (void)arg;
	enter();
	return NULL;
}

static void unregister_thread(const struct uw_thread *thread, void *state, void *arg)
{
	(void)thread, (void)state, (void)arg;
	leave();
}

static void *read_setting(void *arg)
{
	struct timespec until;
	struct setting *setting;

	(void)arg;
	rcu_read_lock();
	setting = rcu_dereference(current_setting);
	sem_post(&reader_is_inside);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += PATIENCE_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	/* A grace period that ends now has not seen this reader. Without registration it is certain to end. */
	overtaken = (registers ? sem_timedwait(&grace_period_ended, &until) : sem_wait(&grace_period_ended)) == 0;
	value_read = setting->value;
	rcu_read_unlock();
	return NULL;
}

static void reclaim(struct uw_work *work)
{
	struct setting *setting = UW_CONTAINER_OF(work, struct setting, reclaim);

	setting->value = 0;
	sem_post(&reclaimed);
}

/* Runs on the thread of call_rcu() after a grace period of liburcu, and leaves the work to a queue. */
static void queue_reclaim(struct rcu_head *head)
{
	struct setting *setting = caa_container_of(head, struct setting, head);

	uw_queue_work(queue, &setting->reclaim);
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, uw_error_text());
	exit(1);
}

int main(int argc, char **argv)
{
	struct uw_thread_hooks *hooks;
	struct uw_job *reader;

	registers = argc < 2 || strcmp(argv[1], "unregistered") != 0;
	sem_init(&reader_is_inside, 0, 0);
	sem_init(&grace_period_ended, 0, 0);
	sem_init(&reclaimed, 0, 0);

	hooks = registers ? uw_thread_hooks_add(register_thread, unregister_thread, NULL) : NULL;
	if (registers && !hooks)
		fail("hooks");
	queue = uw_queue_create("readers", UW_UNBOUND, 0);
	if (!queue)
		fail("queue");
	reader = uw_queue_spawn(queue, read_setting, NULL);
	if (!reader)
		fail("reader");
	sem_wait(&reader_is_inside);

	rcu_assign_pointer(current_setting, &second);
	synchronize_rcu();
	sem_post(&grace_period_ended);
	uw_work_init(&first.reclaim, reclaim);
	call_rcu(&first.head, queue_reclaim);
	sem_wait(&reclaimed);

	if (uw_job_join(reader, NULL) < 0)
		fail("join");
	rcu_barrier();
	if (uw_queue_destroy(queue) < 0)
		fail("destroy");
	if (overtaken) {
		printf("the grace period ended with a reader inside\n");
		return 1;
	}
	printf("the grace period waited for the reader, which read %d\n", value_read);
	return 0;
}
