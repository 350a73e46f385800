// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A server: one thread waits in epoll and serves all connections, and workers compute. A request is a
 * line with a number; the answer is how many primes are below it. A worker returns the answer as task
 * work: the loop's thread itself writes it, so a connection needs no lock.
 *
 * epoll PORT serves on 127.0.0.1 (0: any free port) until its standard input ends. epoll --self-test
 * is also its own client.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uwork.h>

enum { LINE_MAX_BYTES = 32, EVENTS = 64, CLIENTS = 20, REQUESTS = 50 };

/* Belongs to the loop's thread. While a request is computed, the socket is not watched. */
struct connection {
	int fd;
	size_t used;
	char line[LINE_MAX_BYTES];
	unsigned long limit, primes;
	struct uw_work work;
	struct uw_task_work answer;
};

static struct uw_task *loop;
static struct uw_queue *queue;
static int epoll_fd, in_flight;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Ends the program with uwork's error text. */
static void check(int answer)
{
	if (answer < 0) {
		fprintf(stderr, "%s\n", uw_error_text());
		exit(1);
	}
}

/* On a worker. */
static void compute(struct uw_work *work)
{
	struct connection *connection = UW_CONTAINER_OF(work, struct connection, work);
	unsigned long number, divisor;

	connection->primes = 0;
	for (number = 2; number < connection->limit; number++) {
		for (divisor = 2; divisor * divisor <= number && number % divisor; divisor++)
			;
		connection->primes += divisor * divisor > number;
	}
	/* The loop's wait ends, and its thread calls `reply`. */
	check(uw_task_work_add(loop, &connection->answer, UW_NOTIFY_SIGNAL));
}

static void end(struct connection *connection)
{
	close(connection->fd);
	free(connection);
}

/* Adds or changes what epoll watches. */
static void watch(int operation, int fd, unsigned events, void *data)
{
	struct epoll_event event = { .events = events, .data.ptr = data };

	if (epoll_ctl(epoll_fd, operation, fd, &event) != 0)
		die("epoll_ctl");
}

/* Hands the first whole line over to a worker, or waits for more of it. */
static void next_request(struct connection *connection)
{
	char *newline = memchr(connection->line, '\n', connection->used);

	if (!newline && connection->used == LINE_MAX_BYTES) {
		end(connection);
		return;
	}
	if (!newline) {
		watch(EPOLL_CTL_MOD, connection->fd, EPOLLIN | EPOLLONESHOT, connection);
		return;
	}
	*newline++ = 0;
	connection->limit = strtoul(connection->line, NULL, 10);
	connection->used -= (size_t)(newline - connection->line);
	memmove(connection->line, newline, connection->used);
	in_flight++;
	check(uw_queue_work(queue, &connection->work));
}

/* On the loop's thread. */
static void reply(struct uw_task_work *work)
{
	struct connection *connection = UW_CONTAINER_OF(work, struct connection, answer);
	char text[LINE_MAX_BYTES];
	int length = snprintf(text, sizeof(text), "%lu\n", connection->primes);

	in_flight--;
	/* A client that has gone, or does not read its short answers, is given up. */
	if (send(connection->fd, text, (size_t)length, MSG_NOSIGNAL) != length)
		end(connection);
	else
		next_request(connection);
}

static void accept_one(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct connection *connection;

	if (fd < 0)
		return;
	connection = calloc(1, sizeof(*connection));
	if (!connection)
		die("calloc");
	connection->fd = fd;
	uw_work_init(&connection->work, compute);
	uw_task_work_init(&connection->answer, reply);
	watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, connection);
}

static void readable(struct connection *connection)
{
	size_t room = LINE_MAX_BYTES - connection->used;
	ssize_t got = recv(connection->fd, connection->line + connection->used, room, 0);

	if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
		end(connection);
		return;
	}
	connection->used += got > 0 ? (size_t)got : 0;
	next_request(connection);
}

struct wait {
	struct epoll_event events[EVENTS];
};

static int wait_for_events(void *arg)
{
	struct wait *wait = arg;
	int count = epoll_wait(epoll_fd, wait->events, EVENTS, -1);

	return count < 0 ? -errno : count;
}

/* Serves until `stop` is readable and no request is in flight. */
static void serve(int listener, int stop)
{
	static struct wait wait;
	bool stops = false;

	watch(EPOLL_CTL_ADD, listener, EPOLLIN, &listener);
	watch(EPOLL_CTL_ADD, stop, EPOLLIN | EPOLLONESHOT, &stop);
	watch(EPOLL_CTL_ADD, uw_task_fd(), EPOLLIN, &loop);
	while (!stops || in_flight) {
		int count = uw_task_wait(wait_for_events, &wait);

		/* EINTR: there are answers to run. */
		for (int at = 0; at < count; at++) {
			void *data = wait.events[at].data.ptr;

			if (data == &listener)
				accept_one(listener);
			else if (data == &stop)
				stops = true;
			else if (data != &loop)
				readable(data);
		}
		check(uw_task_run());
	}
}

static int listen_on(const char *port, struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	address->sin_family = AF_INET;
	address->sin_port = htons((in_port_t)atoi(port));
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
	    bind(listener, (struct sockaddr *)address, length) != 0 || listen(listener, 64) != 0 ||
	    getsockname(listener, (struct sockaddr *)address, &length) != 0)
		die("listen");
	return listener;
}

struct clients {
	struct sockaddr_in address;
	int stop; /* written when they are done */
	int wrong;
};

/* Requests of many connections; two are under way on each at a time. */
static void *ask(void *arg)
{
	struct clients *clients = arg;
	FILE *streams[CLIENTS];

	for (int client = 0; client < CLIENTS; client++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0 || connect(fd, (void *)&clients->address, sizeof(clients->address)) != 0)
			die("connect");
		streams[client] = fdopen(fd, "r+");
	}
	for (int request = 0; request < REQUESTS; request++)
		for (int client = 0; client < CLIENTS; client++)
			if (dprintf(fileno(streams[client]), "10000\n100\n") < 0)
				die("write");
	for (int client = 0; client < CLIENTS; client++) {
		for (int request = 0; request < REQUESTS; request++) {
			unsigned long many = 0, few = 0;

			if (fscanf(streams[client], "%lu\n%lu", &many, &few) != 2 || many != 1229 || few != 25)
				clients->wrong++;
		}
		fclose(streams[client]);
	}
	if (write(clients->stop, "", 1) != 1)
		die("write");
	return NULL;
}

int main(int argc, char **argv)
{
	bool tests = argc == 2 && strcmp(argv[1], "--self-test") == 0;
	struct clients clients = { .wrong = 0 };
	int listener, stop[2] = { STDIN_FILENO, -1 };
	pthread_t thread;

	if (argc != 2)
		return fprintf(stderr, "usage: epoll PORT | --self-test\n"), 2;
	listener = listen_on(tests ? "0" : argv[1], &clients.address);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop = uw_task_current();
	queue = uw_queue_create("primes", UW_UNBOUND, 0);
	if (epoll_fd < 0 || !loop || !queue)
		return fprintf(stderr, "epoll: %s\n", uw_error_text()), 1;
	if (tests) {
		if (pipe(stop) != 0)
			die("pipe");
		clients.stop = stop[1];
		if (pthread_create(&thread, NULL, ask, &clients) != 0)
			die("pthread_create");
	} else {
		printf("127.0.0.1:%d\n", ntohs(clients.address.sin_port));
		fflush(stdout);
	}
	serve(listener, stop[0]);
	uw_queue_destroy(queue);
	uw_task_put(loop);
	if (tests) {
		pthread_join(thread, NULL);
		printf("%d answers, %d wrong\n", CLIENTS * REQUESTS * 2, clients.wrong);
	}
	return clients.wrong != 0;
}
