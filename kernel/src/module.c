/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A module as a program: its parameters, init and exit. */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <linux/errname.h>
#include <linux/module.h>
#include <linux/string.h>

#define BAD_ARGUMENT 2

struct module uw_kernel_this_module;

/* The kernel names a module after its file; here that is the name of the program. */
__attribute__((constructor)) static void name_this_module(void)
{
	snprintf(uw_kernel_this_module.name, sizeof(uw_kernel_this_module.name), "%s", program_invocation_short_name);
}

struct parameters {
	const struct kernel_param *const *first;
	const struct kernel_param *const *end;
};

static const struct kernel_param *find(const struct parameters *all, const char *name, size_t length, bool description)
{
	const struct kernel_param *const *at;

	for (at = all->first; at < all->end; at++) {
		bool is_text = (*at)->type == UW_PARAM_description;

		if (is_text == description && strlen((*at)->name) == length && strncmp((*at)->name, name, length) == 0)
			return *at;
	}
	return NULL;
}

/* ----------------------------------------------------------------------------------------- values */

static int set_bint(const char *text, const struct kernel_param *param)
{
	bool value;
	int error = kstrtobool(text, &value);

	if (!error)
		*(int *)param->arg = value;
	return error;
}

/* Sets one value, or one element of a list, of each type. */
static const struct setter {
	int (*set)(const char *text, const struct kernel_param *param);
	size_t size;
} setters[] = {
	[UW_PARAM_byte] = { param_set_byte, sizeof(unsigned char) },
	[UW_PARAM_short] = { param_set_short, sizeof(short) },
	[UW_PARAM_ushort] = { param_set_ushort, sizeof(unsigned short) },
	[UW_PARAM_int] = { param_set_int, sizeof(int) },
	[UW_PARAM_uint] = { param_set_uint, sizeof(unsigned int) },
	[UW_PARAM_hexint] = { param_set_hexint, sizeof(unsigned int) },
	[UW_PARAM_long] = { param_set_long, sizeof(long) },
	[UW_PARAM_ulong] = { param_set_ulong, sizeof(unsigned long) },
	[UW_PARAM_ullong] = { param_set_ullong, sizeof(unsigned long long) },
	[UW_PARAM_bool] = { param_set_bool, sizeof(bool) },
	[UW_PARAM_invbool] = { param_set_invbool, sizeof(bool) },
	[UW_PARAM_bint] = { set_bint, sizeof(int) },
	[UW_PARAM_charp] = { param_set_charp, sizeof(char *) },
};

static int set_one(const struct kernel_param *param, unsigned int index, char *text)
{
	struct kernel_param element = *param;

	if (param->type == UW_PARAM_string)
		return uw_kernel_strscpy(param->arg, text, param->max) < 0 ? -ENOSPC : 0;
	if (param->type == UW_PARAM_ops)
		return param->ops->set ? param->ops->set(text, param) : -EPERM;
	if ((size_t)param->type >= ARRAY_SIZE(setters) || !setters[param->type].set)
		return -EINVAL;
	element.arg = (char *)param->arg + index * setters[param->type].size;
	return setters[param->type].set(text, &element);
}

static int set(const struct kernel_param *param, char *text)
{
	bool is_list = param->max > 1 && param->type != UW_PARAM_string;
	unsigned int index;

	for (index = 0; text; index++) {
		char *next = is_list ? strchr(text, ',') : NULL;
		int error;

		if (index >= (is_list ? param->max : 1))
			return -ENOSPC;
		if (next)
			*next++ = '\0';
		error = set_one(param, index, text);
		if (error)
			return error;
		text = next;
	}
	if (param->num)
		*param->num = index;
	return 0;
}

/* -------------------------------------------------------------------------------------- arguments */

static void list(const struct parameters *all, FILE *to)
{
	const struct kernel_param *const *at;

	for (at = all->first; at < all->end; at++) {
		const struct kernel_param *text;

		if ((*at)->type == UW_PARAM_description)
			continue;
		text = find(all, (*at)->name, strlen((*at)->name), true);
		fprintf(to, "  %s=  %s\n", (*at)->name, text ? (const char *)text->arg : "");
	}
	fprintf(to, "  uw.seconds=  how long the module stays loaded: 0 (the default), a number, or inf\n");
}

static int parse_seconds(const char *text, double *seconds)
{
	char *end;

	if (strcmp(text, "inf") == 0) {
		*seconds = -1;
		return 0;
	}
	*seconds = strtod(text, &end);
	return end == text || *end || !(*seconds >= 0 && *seconds < 1e9) ? -EINVAL : 0;
}

/* A description of the value that a parameter expects. */
static const char *kind_of(const struct kernel_param *param)
{
	switch (param->type) {
	case UW_PARAM_byte: return "a number from 0 to 255";
	case UW_PARAM_short: return "a number from -32768 to 32767";
	case UW_PARAM_ushort: return "a number from 0 to 65535";
	case UW_PARAM_int: return "a number of 32 bits";
	case UW_PARAM_uint:
	case UW_PARAM_hexint: return "a number of 32 bits without a sign";
	case UW_PARAM_long: return "a number of a long's size";
	case UW_PARAM_ulong: return "a number of a long's size without a sign";
	case UW_PARAM_ullong: return "a number of 64 bits without a sign";
	case UW_PARAM_bool:
	case UW_PARAM_invbool:
	case UW_PARAM_bint: return "y or n, 1 or 0, on or off";
	default: return "another value";
	}
}

static void say_wrong(const struct kernel_param *param, int error, char *text, size_t size)
{
	if (!param && error != -EINVAL)
		snprintf(text, size, "no such parameter");
	else if (!param)
		snprintf(text, size, "seconds below 1e9, or inf, are expected");
	else if (error == -ENOENT)
		snprintf(text, size, "a value is expected: %s", kind_of(param));
	else if (error == -ENOSPC && param->type == UW_PARAM_string)
		snprintf(text, size, "at most %u bytes are expected", param->max - 1);
	else if (error == -ENOSPC)
		snprintf(text, size, "at most %u values are expected", param->max > 1 ? param->max : 1);
	else if (error == -EINVAL || error == -ERANGE)
		snprintf(text, size, "%s is expected", kind_of(param));
	else
		snprintf(text, size, "%s", strerror(-error));
}

static int parse(const struct parameters *all, const char *program, char *argument, double *seconds)
{
	char *equals = strchr(argument, '=');
	size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
	const struct kernel_param *param = find(all, argument, length, false);
	bool is_flag = param && (param->type == UW_PARAM_bool || param->type == UW_PARAM_invbool);
	static char yes[] = "1";
	int error = -ENOENT;
	char *given, wrong[100];

	/* The parsers of lists overwrite the commas, so the message needs a copy. */
	given = strdup(argument);
	if (length == strlen("uw.seconds") && equals && strncmp(argument, "uw.seconds", length) == 0)
		error = parse_seconds(equals + 1, seconds);
	else if (param && (equals || is_flag))
		error = set(param, equals ? equals + 1 : yes);
	if (error) {
		say_wrong(param, error, wrong, sizeof(wrong));
		fprintf(stderr, "%s: %s: %s; there are\n", program, given ? given : argument, wrong);
		list(all, stderr);
	}
	free(given);
	return error;
}

/* ------------------------------------------------------------------------------------------- main */

static sem_t asked_to_end;

static void ask_to_end(int number)
{
	int saved = errno;

	(void)number;
	sem_post(&asked_to_end);
	errno = saved;
}

/*
 * Only while the module is loaded do these signals unload it. During init and exit they end the
 * process, as without this. A signal that the parent has set to be ignored stays ignored.
 */
static void stay_loaded(double seconds)
{
	static const int numbers[] = { SIGINT, SIGTERM };
	struct sigaction before[ARRAY_SIZE(numbers)], action = { .sa_handler = ask_to_end };
	struct timespec end;
	size_t index;

	sem_init(&asked_to_end, 0, 0);
	sigemptyset(&action.sa_mask);
	for (index = 0; index < ARRAY_SIZE(numbers); index++) {
		sigaction(numbers[index], NULL, &before[index]);
		if (before[index].sa_handler != SIG_IGN)
			sigaction(numbers[index], &action, NULL);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)seconds;
	end.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
	if (end.tv_nsec >= NSEC_PER_SEC) {
		end.tv_sec++;
		end.tv_nsec -= NSEC_PER_SEC;
	}
	while ((seconds < 0 ? sem_wait(&asked_to_end) : sem_clockwait(&asked_to_end, CLOCK_MONOTONIC, &end)) != 0 &&
	       errno == EINTR)
		;
	for (index = 0; index < ARRAY_SIZE(numbers); index++)
		sigaction(numbers[index], &before[index], NULL);
}

int uw_kernel_main(int argc, char **argv, int (*init)(void), void (*exit_function)(void),
		   const struct kernel_param *const *params, const struct kernel_param *const *params_end)
{
	const struct parameters all = { params, params_end };
	double seconds = 0;
	int index, result;

	for (index = 1; index < argc; index++) {
		if (strcmp(argv[index], "--help") == 0) {
			printf("usage: %s [NAME=VALUE]...\n", argv[0]);
			list(&all, stdout);
			return 0;
		}
		if (parse(&all, argv[0], argv[index], &seconds) != 0)
			return BAD_ARGUMENT;
	}
	result = init();
	if (result < 0) {
		const char *name = errname(result);

		fprintf(stderr, "%s: init returned %s\n", argv[0], name ? name : "an unknown error");
		return -result & 0xff;
	}
	if (seconds != 0)
		stay_loaded(seconds);
	if (exit_function)
		exit_function();
	return 0;
}
