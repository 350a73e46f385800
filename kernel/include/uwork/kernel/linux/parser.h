/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Options of the form name=value, by a table of patterns. */
#ifndef UWORK_KERNEL_LINUX_PARSER_H
#define UWORK_KERNEL_LINUX_PARSER_H

#include <linux/kernel.h>
#include <linux/slab.h>
#include <linux/string.h>

/* The last pattern of a table is NULL. */
struct match_token {
	int token;
	const char *pattern;
};

typedef struct match_token match_table_t[];

#define MAX_OPT_ARGS 3

typedef struct {
	char *from;
	char *to;
} substring_t;

/*
 * %s takes the rest, %Ns at most N characters; %d, %u, %o and %x take a number; %% is itself. The
 * text is not changed.
 */
static inline bool uw_match_one(char *text, const char *pattern, substring_t args[])
{
	int count = 0;

	for (;;) {
		size_t width = SIZE_MAX, length;
		char *end = text;
		char kind;

		while (*pattern && *pattern != '%' && *pattern == *text) {
			pattern++;
			text++;
		}
		if (*pattern != '%')
			return *pattern == *text;
		pattern++;
		if (*pattern == '%') {
			if (*text++ != '%')
				return false;
			pattern++;
			continue;
		}
		if (*pattern >= '0' && *pattern <= '9')
			width = simple_strtoul(pattern, (char **)(uintptr_t)&pattern, 10);
		kind = *pattern++;
		switch (kind) {
		case 's':
			length = strlen(text);
			if (length == 0)
				return false;
			end = text + (length < width ? length : width);
			break;
		case 'd':
			simple_strtol(text, &end, 0);
			break;
		case 'u':
			simple_strtoul(text, &end, 0);
			break;
		case 'o':
			simple_strtoul(text, &end, 8);
			break;
		case 'x':
			simple_strtoul(text, &end, 16);
			break;
		default:
			return false;
		}
		if (end == text || count == MAX_OPT_ARGS)
			return false;
		args[count].from = text;
		args[count++].to = end;
		text = end;
	}
}

/* The token of the first pattern that fits; that of the NULL pattern if none does. */
static inline int match_token(char *text, const struct match_token *table, substring_t args[])
{
	while (table->pattern && !uw_match_one(text, table->pattern, args))
		table++;
	return table->token;
}

/* Copies at most size - 1 characters. Returns the length of the argument. */
static inline size_t match_strlcpy(char *to, const substring_t *from, size_t size)
{
	size_t length = (size_t)(from->to - from->from), copied = length < size ? length : size - 1;

	if (size > 0) {
		memcpy(to, from->from, copied);
		to[copied] = '\0';
	}
	return length;
}

static inline char *match_strdup(const substring_t *from)
{
	return kmemdup_nul(from->from, (size_t)(from->to - from->from), GFP_KERNEL);
}

#define UW_MATCH_NUMBER(name, type, parse, base) \
	static inline int name(const substring_t *from, type *value) \
	{ \
		char text[32]; \
		if (match_strlcpy(text, from, sizeof(text)) >= sizeof(text)) \
			return -ERANGE; \
		return parse(text, (base), value); \
	}
UW_MATCH_NUMBER(match_int, int, kstrtoint, 0)
UW_MATCH_NUMBER(match_uint, unsigned int, kstrtouint, 0)
UW_MATCH_NUMBER(match_u64, u64, kstrtou64, 0)
UW_MATCH_NUMBER(match_octal, int, kstrtoint, 8)
UW_MATCH_NUMBER(match_hex, int, kstrtoint, 16)

#endif
