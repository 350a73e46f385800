/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages, warnings and bugs. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#include <linux/kernel.h>
#include <linux/sched.h>
#include "cancel.h"
#include "fork.h"

#define MESSAGE_MAX 1024
/* The most calls that dump_stack() prints. */
#define DUMP_CALLS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/*
 * The descriptor of the last message, if that did not end its line; otherwise 0. Guard: the lock.
 */
static int open_line;

void uw_printk_fork(enum uw_fork at)
{
	uw_fork_mutex(&lock, at);
}

static void write_all(int fd, const char *text, size_t length)
{
	while (length > 0) {
		ssize_t count = write(fd, text, length);

		/* If this write fails, no other channel for the message is left. */
		if (count <= 0)
			return;
		text += count;
		length -= (size_t)count;
	}
}

/* Writes a message so that its lines stay together, after the output that stdio has buffered. */
static void emit(int fd, bool goes_on, const char *text, size_t length)
{
	UW_HOLD_CANCEL_OFF;

	pthread_mutex_lock(&lock);
	/*
	 * Under the lock, so that at a fork no thread is inside fflush(): the sanitizers' runtime
	 * has locks of its own there.
	 */
	fflush(fd == STDERR_FILENO ? stderr : stdout);
	if (goes_on && open_line)
		fd = open_line;
	else if (open_line)
		write_all(open_line, "\n", 1);
	write_all(fd, text, length);
	open_line = length > 0 && text[length - 1] != '\n' ? fd : 0;
	pthread_mutex_unlock(&lock);
}

/*
 * If the format says so, changes a leading "name.c:" to "name:", as makefiles derive a module's
 * name from its file's.
 */
static size_t drop_suffix(const char *fmt, char *text, size_t length)
{
	size_t name = strcspn(fmt, ":/% \n");

	if (name < 3 || name > length || fmt[name] != ':' || strncmp(fmt + name - 2, ".c", 2) != 0)
		return length;
	memmove(text + name - 2, text + name, length - name + 1);
	return length - 2;
}

static int vprintk(const char *fmt, bool of_file, va_list args)
{
	char text[MESSAGE_MAX];
	char level = 'd';
	int length, fd;

	if (fmt[0] == KERN_SOH[0] && fmt[1]) {
		level = fmt[1];
		fmt += 2;
	}
	length = uw_kernel_vsnprintf(text, sizeof(text), fmt, args);
	if (length >= (int)sizeof(text)) {
		length = sizeof(text) - 1;
		text[length - 1] = '\n';
	}
	/* The level may be part of an argument. */
	if (level == 'd' && text[0] == KERN_SOH[0] && length > 1) {
		level = text[1];
		length -= 2;
		memmove(text, text + 2, (size_t)length + 1);
	}
	if (of_file)
		length = (int)drop_suffix(fmt, text, (size_t)length);
	fd = level >= '0' && level <= '4' ? STDERR_FILENO : STDOUT_FILENO;
	emit(fd, level == 'c', text, (size_t)length);
	return length;
}

int uw_kernel_printk(const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = vprintk(fmt, false, args);
	va_end(args);
	return length;
}

int uw_kernel_printk_of_file(const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = vprintk(fmt, true, args);
	va_end(args);
	return length;
}

struct calls {
	unsigned int count;
	void *at[DUMP_CALLS];
};

static _Unwind_Reason_Code note_call(struct _Unwind_Context *context, void *arg)
{
	struct calls *calls = arg;
	int is_before = 0;
	uintptr_t at = _Unwind_GetIPInfo(context, &is_before);

	if (at == 0 || calls->count == DUMP_CALLS)
		return _URC_END_OF_STACK;
	/*
	 * A return address may be that of the next function: the call is the instruction before it.
	 */
	calls->at[calls->count++] = (void *)(is_before ? at : at - 1);
	return _URC_NO_REASON;
}

void uw_kernel_dump_stack(void)
{
	struct calls calls = { .count = 0 };
	unsigned int i;

	_Unwind_Backtrace(note_call, &calls);
	uw_kernel_printk(KERN_WARNING "PID: %d Comm: %s\nCall Trace:\n", current->pid, current->comm);
	/* The first entry is this function. */
	for (i = 1; i < calls.count; i++)
		uw_kernel_printk(KERN_WARNING " %pS\n", calls.at[i]);
}

void panic(const char *fmt, ...)
{
	char text[MESSAGE_MAX];
	va_list args;

	va_start(args, fmt);
	uw_kernel_vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	uw_kernel_printk(KERN_EMERG "Kernel panic - not syncing: %s\n", text);
	uw_kernel_dump_stack();
	abort();
}

void uw_kernel_bug(const char *what, const char *file, int line)
{
	uw_kernel_printk(KERN_EMERG "BUG: %s at %s:%d\n", what, file, line);
	abort();
}

bool uw_kernel_warn(const char *file, int line, const char *fmt, ...)
{
	char text[MESSAGE_MAX];
	va_list args;
	size_t length;

	va_start(args, fmt);
	uw_kernel_vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	length = strlen(text);
	if (length > 0 && text[length - 1] == '\n')
		text[length - 1] = '\0';
	uw_kernel_printk(KERN_WARNING "WARNING: at %s:%d: %s\n", file, line, text);
	return true;
}
