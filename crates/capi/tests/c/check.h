/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The thread's error text before the condition that is evaluated. */
static __thread char check_text_before[512];

static inline void check_begin(void)
{
	strncpy(check_text_before, uw_error_text(), sizeof(check_text_before) - 1);
}

/* The error text belongs to the condition if a call in it has changed it. */
__attribute__((noreturn)) static inline void check_failed(const char *file, int line, const char *condition)
{
	const char *text = uw_error_text();

	if (strcmp(text, check_text_before) != 0)
		fprintf(stderr, "%s:%d: %s (%s)\n", file, line, condition, text);
	else
		fprintf(stderr, "%s:%d: %s\n", file, line, condition);
	exit(1);
}

#define CHECK(condition) \
	do { \
		check_begin(); \
		if (!(condition)) \
			check_failed(__FILE__, __LINE__, #condition); \
	} while (0)

#endif
