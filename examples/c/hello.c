/* An item that counts, a job with a result, and a timer. Build it: cc hello.c $(pkg-config --cflags --libs uwork) */
#include <stdio.h>
#include <stdlib.h>

#include <uwork.h>

struct counter {
	struct uw_work work;
	struct uw_delayed_work later;
	int runs;
};

static void count(struct uw_work *work)
{
	struct counter *counter = UW_CONTAINER_OF(work, struct counter, work);

	counter->runs++;
}

static void count_later(struct uw_work *work)
{
	struct counter *counter = UW_CONTAINER_OF(uw_to_delayed_work(work), struct counter, later);

	counter->runs += 10;
}

static void *twice(void *arg)
{
	int *number = arg;

	*number *= 2;
	return number;
}

/* Ends the program with the error text. */
static void check(int answer)
{
	if (answer < 0) {
		fprintf(stderr, "%s\n", uw_error_text());
		exit(1);
	}
}

int main(void)
{
	struct uw_queue *queue = uw_queue_create("hello", UW_UNBOUND, 0);
	struct counter counter = { .runs = 0 };
	int answer = 21;

	if (!queue) {
		fprintf(stderr, "%s\n", uw_error_text());
		return 1;
	}
	uw_work_init(&counter.work, count);
	uw_delayed_work_init(&counter.later, count_later, 0, 0);

	check(uw_queue_work(queue, &counter.work));
	check(uw_work_flush(&counter.work));
	check(uw_queue_delayed_work(queue, &counter.later, 1000 * 1000));
	check(uw_delayed_work_flush(&counter.later));
	check(uw_job_join(uw_queue_spawn(queue, twice, &answer), NULL));

	printf("%d counted, %d computed on a worker\n", counter.runs, answer);
	check(uw_queue_destroy(queue));
	return 0;
}
