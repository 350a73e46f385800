/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uwork-bridge.h: jobs of Redis Streams, run by handlers in C.
 *
 * A consumer fetches jobs of streams, runs each with a handler on a uwork queue, and acknowledges it
 * when it has completed. A producer adds jobs. Every job runs at least once: docs/bridge.md says when
 * it runs twice, and how an effect happens exactly once.
 *
 * Link with -luwork-bridge in the place of -luwork: the library has all functions of uwork.h.
 *
 * Results are as in uwork.h: 0 or a negative errno value; or NULL, with errno. uw_error_text()
 * describes the error in one line. Errors marked with * are always bugs of the program.
 *
 *   EINVAL *          NULL where it is not allowed
 *   EINVAL            a setting out of range; an address, certificate or text that is not valid
 *   EHOSTUNREACH      the server does not answer, or the connection was cut
 *   EAGAIN            the server refuses for now: LOADING, OOM, READONLY, CLUSTERDOWN
 *   EACCES            a missing or wrong password, or a rule of the server's ACL
 *   ENOENT            there is no dead letter with this number
 *   EPROTO            the key is not a stream, or another answer that stays the same; `strict`
 *   ENOMEM            no memory for what the call creates or copies
 *   ECANCELED         the consumer runs in the parent of this forked process
 *   ENOTRECOVERABLE   an internal error; uw_error_text() has its message
 *
 * After fork() the child may start consumers of its own. Producers and dead letters work in both
 * processes. A consumer of the parent runs no job in the child: uw_bridge_stop() frees the child's
 * copy and fails with ECANCELED, as uw_bridge_get_counters() does.
 *
 * No function is a cancellation point, as in uwork.h.
 */
#ifndef UWORK_BRIDGE_H
#define UWORK_BRIDGE_H

#include <uwork.h>

#ifdef __cplusplus
extern "C" {
/* A structure and a function have one name. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/* ------------------------------------------------------------------------------------------ jobs */

/* A job, which belongs to the handler during its call. All texts and bytes of it live as long. */
struct uw_bridge_job;

/* The payload, without a zero byte at its end. `length` may be NULL. */
const void *uw_bridge_job_payload(const struct uw_bridge_job *job, size_t *length);

/*
 * The id: the producer's, or the number of the entry. The producer's is the same in each attempt,
 * so it is the key for effects that must happen once.
 */
const char *uw_bridge_job_id(const struct uw_bridge_job *job);

/* NULL if the producer gave none. */
const char *uw_bridge_job_handler(const struct uw_bridge_job *job);
const char *uw_bridge_job_key(const struct uw_bridge_job *job);

const char *uw_bridge_job_stream(const struct uw_bridge_job *job);

/* The number of this attempt, from 1; and the error of the one before, or NULL. */
unsigned uw_bridge_job_attempt(const struct uw_bridge_job *job);
const char *uw_bridge_job_last_error(const struct uw_bridge_job *job);

/*
 * Whether the run has lost its job: its time limit is over, or the consumer ends. Its outcome will
 * be ignored, so a long handler may return.
 */
bool uw_bridge_job_is_abandoned(const struct uw_bridge_job *job);

/* Sets the result, which is copied. Without a place for results it is dropped. */
int uw_bridge_job_set_result(struct uw_bridge_job *job, const void *result, size_t length);

/* Sets the error of a handler that fails, which is copied. NULL: none. */
int uw_bridge_job_set_error(struct uw_bridge_job *job, const char *error);

struct uw_bridge_word {
	const void *bytes;
	size_t length;
};

/*
 * Sets the command that the server runs in one step with the acknowledgement, if and only if this
 * attempt acknowledges the job. In a cluster its keys have the tag of the stream. The words are copied. A command
 * that fails has changed nothing: the attempt has failed, and the job is tried again. A right that
 * the user lacks fails no attempt: the consumer reports it, holds the job, and asks again.
 *
 * Several changes are a script: EVAL, its text, the number of keys, the keys, the arguments. It
 * checks before it writes. A script that fails keeps what it has written, so its job becomes a dead
 * letter in the same step, and no run repeats the writes.
 *
 * EINVAL: no word, or a second effect. With more than 7000 words the job becomes a dead letter.
 */
int uw_bridge_job_add_effect(struct uw_bridge_job *job, const struct uw_bridge_word *words, size_t count);

/* -------------------------------------------------------------------------------------- consumers */

/* What a handler returns. Any other value is a failure that is tried again. */
enum uw_bridge_outcome {
	UW_BRIDGE_DONE,  /* acknowledge the job */
	UW_BRIDGE_AGAIN, /* failed: try again after a delay */
	UW_BRIDGE_DEAD,  /* failed: no attempt can mend it, so it becomes a dead letter at once */
	/*
	 * This consumer cannot run jobs now, for a reason that is not the job's: a database that does not
	 * answer. The job goes back to its stream without an attempt, and other consumers may take it.
	 * This one reports the error, hands back what it holds, and fetches nothing until a job can run.
	 */
	UW_BRIDGE_NOT_NOW
};

/*
 * Runs on workers of uwork, up to `max_active` at once, and may block, wait and use all of uwork.h.
 * What uwork.h forbids the function of an item is forbidden here and in `report`: longjmp,
 * pthread_exit, exceptions. One that does not return ends the process with a message.
 */
typedef int (*uw_bridge_fn)(struct uw_bridge_job *job, void *arg);

struct uw_bridge_handler {
	const char *name; /* of the jobs that it takes; NULL: all that no other handler takes */
	uw_bridge_fn func;
	void *arg;
};

/* Begin with UW_BRIDGE_CONFIG_INIT. A member that is 0 or NULL leaves its setting at the default. */
struct uw_bridge_config {
	size_t size;                /* sizeof(struct uw_bridge_config) */
	const char *const *servers; /* redis://127.0.0.1:6379; shards are dealt out to them in turn */
	size_t server_count;
	const char *const *streams; /* by falling priority; at least 1. A producer uses the first */
	size_t stream_count;
	unsigned shards;            /* of each stream; 1 */
	unsigned max_active;        /* how many jobs run at once, 1 to 2048; twice the number of CPUs */
	const char *group;          /* "uwork"; it is created if it does not exist */
	const char *name;           /* "uwork"; for people */
	const char *ca_file;        /* for rediss://: the authority's certificate; the system's */
	const char *cert_file;      /* the client's certificate and its key; none */
	const char *key_file;
	uint64_t heartbeat_ns;      /* after which a silent consumer's jobs are taken over, 100 ms to 24 h; 10 s */
	uint64_t limit_ns;          /* after which an attempt counts as failed, at least 1 ms; none */
	uint64_t retry_first_ns;    /* the delay before the second attempt, which doubles; 1 s */
	uint64_t retry_max_ns;      /* the longest delay; 10 minutes */
	uint64_t result_key_ns;     /* each result to a key, which expires after this time; dropped */
	uint64_t result_stream_max; /* all results to a stream, and about how many it keeps; dropped */
	uint64_t dead_max;          /* about how many dead letters are kept; all */
	size_t payload_bytes_max;   /* the memory for jobs that are held; 48 MiB */
	unsigned attempts_max;      /* the attempts after which a job becomes a dead letter; 5 */
	bool keep;                  /* entries stay in the stream when they are done */
	bool strict;                /* EPROTO for a server that evicts keys, has no append-only file, is a
	                             * replica, or does not tell; if a server begins to do so later, no job
	                             * is fetched from it until that ends; without it a consumer reports it */
	uint64_t window_ns;         /* of a producer: in which a second job of an id is not added; 1 h */
	unsigned patience;          /* the factor of all time limits of exchanges with a server; 1 */
};

#define UW_BRIDGE_CONFIG_INIT { .size = sizeof(struct uw_bridge_config) }

/* A running consumer. */
struct uw_bridge;

/*
 * Starts a consumer: connects, creates the groups that do not exist, and begins to fetch. A server
 * that is not ready gets 10 s, times `patience`. The configuration and the names are copied.
 * `report` gets one line for each fault that begins or ends and for each dead letter, on any thread,
 * and must not block. With NULL the lines go to standard error.
 */
struct uw_bridge *uw_bridge_start(const struct uw_bridge_config *config,
				  const struct uw_bridge_handler *handlers, size_t count,
				  void (*report)(const char *line, void *arg), void *arg);

/* The name of the consumer on the server: the configured one, made unique. */
const char *uw_bridge_consumer(const struct uw_bridge *bridge);

struct uw_bridge_counters {
	uint64_t done;        /* jobs that were acknowledged */
	uint64_t retries;     /* attempts that failed and are tried again */
	uint64_t dead;        /* jobs that became dead letters */
	uint64_t reclaimed;   /* jobs taken over from other consumers */
	uint64_t lost;        /* jobs that another consumer took over from this one */
	uint64_t duplicates;  /* jobs that completed although an earlier run had begun */
	uint64_t handed_back; /* jobs that came back to the stream at the end */
	uint64_t faults;      /* exchanges with a server that failed */
	uint64_t held;        /* jobs held now */
	uint64_t abandoned;   /* uw_bridge_stop: runs that had not ended within the limit */
	uint64_t uncommitted; /* uw_bridge_stop: jobs whose fate no server has heard of */
};

int uw_bridge_get_counters(const struct uw_bridge *bridge, struct uw_bridge_counters *counters);

/*
 * Ends a consumer and frees it: stops fetching, hands back jobs that have not begun, waits for
 * running ones up to the limit, hands back the rest, and acknowledges. It takes at most 6 s longer
 * than the limit, or 12 s if a server does not answer, or answers slowly, times `patience`.
 * `counters` may be NULL. A handler that is still running after the limit goes on, and its arguments
 * must live on. From a handler of this consumer it waits for itself up to the limit.
 */
int uw_bridge_stop(struct uw_bridge *bridge, uint64_t limit_ns, struct uw_bridge_counters *counters);

/* -------------------------------------------------------------------------------------- producers */

/* Adds jobs to the first stream of a configuration. One thread uses it at a time. */
struct uw_bridge_producer;

/* Connects at the first push, or with `strict` at once. */
struct uw_bridge_producer *uw_bridge_producer_create(const struct uw_bridge_config *config);

/* NULL is allowed. */
void uw_bridge_producer_destroy(struct uw_bridge_producer *producer);

/* Members that are 0 or NULL: none. */
struct uw_bridge_push {
	const void *payload;
	size_t length;
	const char *handler; /* the name of the handler */
	const char *id;      /* not empty; a second job is not added within the window, whatever its key */
	const char *key;     /* chooses the shard; without it the id, and without both a random number */
	uint64_t delay_ns;   /* by the server's clock, in milliseconds */
};

enum uw_bridge_pushed {
	UW_BRIDGE_ADDED,
	UW_BRIDGE_DELAYED,
	UW_BRIDGE_DUPLICATE /* a job with its id was pushed within the window */
};

/*
 * Adds jobs, in order within each shard, and writes the outcome of each; `outcomes` may be NULL. On
 * failure it is unknown which were added: jobs with ids may be pushed again.
 */
int uw_bridge_push(struct uw_bridge_producer *producer, const struct uw_bridge_push *jobs, size_t count,
		   int *outcomes);

/* ----------------------------------------------------------------------------------- dead letters */

/* The dead letters of all streams of a configuration, and of their shards: for one thread at a time. */
struct uw_bridge_dead;

/*
 * Connects at the first question. `window_ns` is the time after a replay in which a second job of its
 * id is not added.
 */
struct uw_bridge_dead *uw_bridge_dead_create(const struct uw_bridge_config *config);

/* NULL is allowed. */
void uw_bridge_dead_destroy(struct uw_bridge_dead *dead);

/* A later version may add members at the end. */
struct uw_bridge_letter {
	const char *stream;     /* the stream, or its shard */
	const char *number;     /* that of the letter */
	const char *entry;      /* the number of the job's first entry in the stream; NULL if unknown */
	const char *id;         /* NULL if the producer gave none, as the next two */
	const char *handler;
	const char *key;
	const char *group;      /* the group that has failed, if the stream had several, or NULL */
	const char *error;      /* why: the last error */
	const void *payload;
	size_t length;          /* of what `payload` points to */
	uint64_t payload_bytes; /* of the whole payload */
	uint64_t age_ns;        /* since the job became a dead letter, by the server's clock */
	unsigned attempts;      /* that have failed */
	const char *quarantine; /* the entry that has the job, if that cannot be moved, or NULL */
};

/*
 * The next letter: stream after stream, the oldest first. Texts and payload are cut to 4096 bytes.
 * It lives until the next call with `dead`. NULL with errno 0 is the end, and the call after it
 * begins anew. After a failure the next call goes on at the same place.
 */
const struct uw_bridge_letter *uw_bridge_dead_next(struct uw_bridge_dead *dead);

/*
 * The letter with a number, as in 1764334000000-0, with its whole payload. It lives until the next
 * call with `dead`. Where several streams or shards have letters of one number: STREAM/NUMBER.
 */
const struct uw_bridge_letter *uw_bridge_dead_get(struct uw_bridge_dead *dead, const char *number);

struct uw_bridge_settled {
	uint64_t settled; /* letters that were replayed or dropped */
	uint64_t left;    /* letters that are no jobs, which a replay leaves where they are */
};

/*
 * Moves a letter back to its stream, behind the jobs that wait, with all attempts left; or with
 * NULL as its number, all letters that exist now. `counts` may be NULL; after an error it has what
 * is known to be settled. After EHOSTUNREACH it is unknown whether one more job was moved; it is in
 * one place in any case. ENOENT: also a letter that is no job.
 */
int uw_bridge_dead_replay(struct uw_bridge_dead *dead, const char *number,
			  struct uw_bridge_settled *counts);

/* Removes a letter, or with NULL all that exist now. Their ids may be pushed again. */
int uw_bridge_dead_drop(struct uw_bridge_dead *dead, const char *number,
			struct uw_bridge_settled *counts);

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif

#endif
