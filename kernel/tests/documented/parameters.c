// SPDX-License-Identifier: MIT OR Apache-2.0
/* Module parameters of every type, one with operations of its own, and numbers in text. */
#include <linux/kernel.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/stat.h>

static bool verbose;
module_param(verbose, bool, 0644);
MODULE_PARM_DESC(verbose, "Print more");

static int debug_level = 3;
module_param_named(debug, debug_level, int, S_IRUGO | S_IWUSR);
MODULE_PARM_DESC(debug, "Debug level (0-7)");

static char *mode = "auto";
module_param(mode, charp, 0444);

static unsigned short ports[4] = { 80 };
static int nr_ports = 1;
module_param_array(ports, ushort, &nr_ports, 0444);

static char label[16] = "none";
module_param_string(label, label, sizeof(label), 0644);

static unsigned long size_kb = 4;
module_param(size_kb, ulong, 0);

static unsigned int percent = 50;

static int percent_set(const char *val, const struct kernel_param *kp)
{
	unsigned int n;
	int ret = kstrtouint(val, 0, &n);

	if (ret)
		return ret;
	if (n > 100)
		return -ERANGE;
	*(unsigned int *)kp->arg = n;
	return 0;
}

static const struct kernel_param_ops percent_ops = {
	.set = percent_set,
	.get = param_get_uint,
};
module_param_cb(percent, &percent_ops, &percent, 0644);

static int __init parameters_init(void)
{
	long long ll;
	unsigned long ul;
	bool yes;
	u8 byte;
	int n;

	if (debug_level < 0 || debug_level > 7)
		return -EINVAL;
	if (kstrtoint("-17", 10, &n) || n != -17)
		return -EINVAL;
	if (kstrtoint("0x1f\n", 0, &n) || n != 31)
		return -EINVAL;
	if (kstrtoint("017", 0, &n) || n != 15)
		return -EINVAL;
	if (kstrtoul("12 ", 10, &ul) != -EINVAL || kstrtoul("-1", 10, &ul) != -EINVAL)
		return -EINVAL;
	if (kstrtou8("256", 10, &byte) != -ERANGE || kstrtou8("255", 10, &byte) || byte != 255)
		return -EINVAL;
	if (kstrtoll("-+1", 10, &ll) != -EINVAL || kstrtoll("", 10, &ll) != -EINVAL ||
	    kstrtoll("--1", 10, &ll) != -EINVAL || kstrtoll("+", 10, &ll) != -EINVAL)
		return -EINVAL;
	if (kstrtoll("-9223372036854775808", 10, &ll) || ll != LLONG_MIN)
		return -EINVAL;
	if (kstrtoll("9223372036854775808", 10, &ll) != -ERANGE)
		return -EINVAL;
	if (kstrtobool("on", &yes) || !yes || kstrtobool("N", &yes) || yes || !kstrtobool("perhaps", &yes))
		return -EINVAL;
	if (simple_strtoul("42abc", NULL, 10) != 42)
		return -EINVAL;
	if (sscanf("7 of 9", "%d of %d", &n, &debug_level) != 2 || n != 7 || debug_level != 9)
		return -EINVAL;
	if (percent != 50 || strcmp(mode, "auto") || ports[0] != 80 || nr_ports != 1 ||
	    strcmp(label, "none") || size_kb != 4 || verbose)
		return -EINVAL;
	pr_info("parameters: passed\n");
	return 0;
}

static void __exit parameters_exit(void)
{
}

module_init(parameters_init);
module_exit(parameters_exit);
MODULE_LICENSE("GPL");
MODULE_ALIAS("documented-parameters");
MODULE_VERSION("1.0");
