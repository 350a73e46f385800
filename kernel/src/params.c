/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Setting and showing parameters, by type. */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/string.h>

#define PAGE 4096

#define UW_PARAM_FUNCTIONS(name, kind, parse, format) \
	int param_set_##name(const char *val, const struct kernel_param *kp) \
	{ \
		return val ? parse(val, 0, (kind *)kp->arg) : -EINVAL; \
	} \
	int param_get_##name(char *buffer, const struct kernel_param *kp) \
	{ \
		return scnprintf(buffer, PAGE, format "\n", *(const kind *)kp->arg); \
	}

UW_PARAM_FUNCTIONS(byte, u8, kstrtou8, "%u")
UW_PARAM_FUNCTIONS(short, s16, kstrtos16, "%d")
UW_PARAM_FUNCTIONS(ushort, u16, kstrtou16, "%u")
UW_PARAM_FUNCTIONS(int, int, kstrtoint, "%d")
UW_PARAM_FUNCTIONS(uint, unsigned int, kstrtouint, "%u")
UW_PARAM_FUNCTIONS(long, long, kstrtol, "%ld")
UW_PARAM_FUNCTIONS(ulong, unsigned long, kstrtoul, "%lu")
UW_PARAM_FUNCTIONS(ullong, unsigned long long, kstrtoull, "%llu")
UW_PARAM_FUNCTIONS(hexint, unsigned int, kstrtouint, "%#08x")

int param_set_uint_minmax(const char *val, const struct kernel_param *kp, unsigned int min, unsigned int max)
{
	unsigned int value;
	int error = val ? kstrtouint(val, 0, &value) : -EINVAL;

	if (error)
		return error;
	if (value < min || value > max)
		return -EINVAL;
	*(unsigned int *)kp->arg = value;
	return 0;
}

int param_set_bool(const char *val, const struct kernel_param *kp)
{
	return kstrtobool(val ? val : "1", kp->arg);
}

int param_get_bool(char *buffer, const struct kernel_param *kp)
{
	return scnprintf(buffer, PAGE, "%c\n", *(const bool *)kp->arg ? 'Y' : 'N');
}

int param_set_invbool(const char *val, const struct kernel_param *kp)
{
	bool value;
	int error = kstrtobool(val ? val : "1", &value);

	if (!error)
		*(bool *)kp->arg = !value;
	return error;
}

int param_get_invbool(char *buffer, const struct kernel_param *kp)
{
	return scnprintf(buffer, PAGE, "%c\n", *(const bool *)kp->arg ? 'N' : 'Y');
}

/* The text stays valid: it is an argument of the program. */
int param_set_charp(const char *val, const struct kernel_param *kp)
{
	if (!val)
		return -EINVAL;
	*(const char **)kp->arg = val;
	return 0;
}

int param_get_charp(char *buffer, const struct kernel_param *kp)
{
	return scnprintf(buffer, PAGE, "%s\n", *(const char *const *)kp->arg);
}
