/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Strings and numbers. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <linux/errname.h>
#include <linux/kernel.h>
#include <linux/random.h>
#include <linux/sort.h>
#include <linux/string.h>

char *uw_kernel_strdup(const char *text, size_t most)
{
	return text ? strndup(text, most) : NULL;
}

char *uw_kernel_vasprintf(const char *fmt, va_list args)
{
	va_list again;
	char *text;
	int length;

	va_copy(again, args);
	length = uw_kernel_vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	text = malloc((size_t)length + 1);
	if (text)
		uw_kernel_vsnprintf(text, (size_t)length + 1, fmt, args);
	return text;
}

char *uw_kernel_asprintf(const char *fmt, ...)
{
	va_list args;
	char *text;

	va_start(args, fmt);
	text = uw_kernel_vasprintf(fmt, args);
	va_end(args);
	return text;
}

char *strim(char *text)
{
	size_t length = strlen(text);

	while (length > 0 && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

ssize_t uw_kernel_strscpy(char *to, const char *from, size_t size)
{
	size_t length = strnlen(from, size);

	if (size == 0)
		return -E2BIG;
	if (length == size) {
		memcpy(to, from, size - 1);
		to[size - 1] = '\0';
		return -E2BIG;
	}
	memcpy(to, from, length + 1);
	return (ssize_t)length;
}

int uw_kernel_match_string(const char *const *texts, size_t count, const char *text)
{
	size_t index;

	for (index = 0; index < count && texts[index]; index++) {
		if (strcmp(texts[index], text) == 0)
			return (int)index;
	}
	return -EINVAL;
}

/* The errors that only the kernel has; the system's table has the others. */
static const struct {
	int number;
	const char *name;
} kernel_errors[] = {
	{ ERESTARTSYS, "-ERESTARTSYS" },
	{ ERESTARTNOINTR, "-ERESTARTNOINTR" },
	{ ERESTARTNOHAND, "-ERESTARTNOHAND" },
	{ ENOIOCTLCMD, "-ENOIOCTLCMD" },
	{ EPROBE_DEFER, "-EPROBE_DEFER" },
	{ EOPENSTALE, "-EOPENSTALE" },
	{ ENOPARAM, "-ENOPARAM" },
	{ EBADHANDLE, "-EBADHANDLE" },
	{ ENOTSYNC, "-ENOTSYNC" },
	{ EBADCOOKIE, "-EBADCOOKIE" },
	{ ENOTSUPP, "-ENOTSUPP" },
	{ ETOOSMALL, "-ETOOSMALL" },
	{ ESERVERFAULT, "-ESERVERFAULT" },
	{ EBADTYPE, "-EBADTYPE" },
	{ EJUKEBOX, "-EJUKEBOX" },
	{ EIOCBQUEUED, "-EIOCBQUEUED" },
};

#define ERRORS_MAX 134

/* The system's names with a minus sign in front. */
static char system_errors[ERRORS_MAX][20];

static void name_system_errors(void)
{
	int number;

	for (number = 1; number < ERRORS_MAX; number++) {
		const char *name = strerrorname_np(number);

		if (name)
			snprintf(system_errors[number], sizeof(system_errors[number]), "-%s", name);
	}
}

static const char *system_error(int number)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, name_system_errors);
	return number > 0 && number < ERRORS_MAX && system_errors[number][0] ? system_errors[number] : NULL;
}

const char *errname(int err)
{
	int number = err < 0 ? -err : err;
	const char *name = system_error(number);
	size_t index;

	for (index = 0; !name && index < ARRAY_SIZE(kernel_errors); index++) {
		if (kernel_errors[index].number == number)
			name = kernel_errors[index].name;
	}
	return name && err > 0 ? name + 1 : name;
}

/* ---------------------------------------------------------------------------------------- numbers */

int kstrtoull(const char *text, unsigned int base, unsigned long long *value)
{
	unsigned long long number;
	char *end;

	if (*text == '+')
		text++;
	if (!isalnum((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, (int)base);
	if (errno == ERANGE)
		return -ERANGE;
	if (end == text || (*end && !(*end == '\n' && !end[1])))
		return -EINVAL;
	*value = number;
	return 0;
}

int kstrtoll(const char *text, unsigned int base, long long *value)
{
	unsigned long long number;
	bool negative = *text == '-';
	int error;

	/* At most one sign. */
	if (negative && text[1] == '+')
		return -EINVAL;
	error = kstrtoull(negative ? text + 1 : text, base, &number);
	if (error)
		return error;
	if (number > (unsigned long long)LLONG_MAX + negative)
		return -ERANGE;
	*value = negative ? -(long long)(number - 1) - 1 : (long long)number;
	return 0;
}

int kstrtoul(const char *text, unsigned int base, unsigned long *value)
{
	unsigned long long number;
	int error = kstrtoull(text, base, &number);

	if (!error)
		*value = (unsigned long)number;
	return error;
}

int kstrtol(const char *text, unsigned int base, long *value)
{
	long long number;
	int error = kstrtoll(text, base, &number);

	if (!error)
		*value = (long)number;
	return error;
}

int kstrtoint(const char *text, unsigned int base, int *value)
{
	long long number;
	int error = kstrtoll(text, base, &number);

	if (error)
		return error;
	if (number < INT_MIN || number > INT_MAX)
		return -ERANGE;
	*value = (int)number;
	return 0;
}

int kstrtouint(const char *text, unsigned int base, unsigned int *value)
{
	unsigned long long number;
	int error = kstrtoull(text, base, &number);

	if (error)
		return error;
	if (number > UINT_MAX)
		return -ERANGE;
	*value = (unsigned int)number;
	return 0;
}

int kstrtobool(const char *text, bool *value)
{
	switch (text[0]) {
	case 'y':
	case 'Y':
	case 't':
	case 'T':
	case '1':
		*value = true;
		return 0;
	case 'n':
	case 'N':
	case 'f':
	case 'F':
	case '0':
		*value = false;
		return 0;
	case 'o':
	case 'O':
		if (text[1] == 'n' || text[1] == 'N' || text[1] == 'f' || text[1] == 'F') {
			*value = text[1] == 'n' || text[1] == 'N';
			return 0;
		}
		return -EINVAL;
	default:
		return -EINVAL;
	}
}

/* ------------------------------------------------------------------------- sorting, random numbers */

struct order {
	cmp_r_func_t compare;
	const void *priv;
};

static int compare(const void *a, const void *b, void *arg)
{
	const struct order *order = arg;

	return order->compare(a, b, order->priv);
}

void uw_kernel_sort_r(void *base, size_t num, size_t size, cmp_r_func_t function, const void *priv)
{
	struct order order = { function, priv };

	qsort_r(base, num, size, compare, &order);
}

void get_random_bytes(void *buf, size_t count)
{
	char *at = buf;

	while (count > 0) {
		ssize_t got = getrandom(at, count, 0);

		if (got < 0) {
			if (errno == EINTR)
				continue;
			uw_kernel_bug("getrandom", __FILE__, __LINE__);
		}
		at += got;
		count -= (size_t)got;
	}
}
