/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A module is a program: main() calls its init function. Includes the system's header of the same
 * name.
 */
#ifndef UWORK_KERNEL_LINUX_MODULE_H
#define UWORK_KERNEL_LINUX_MODULE_H

/* Included before the pragma below: the compiler does not check formats in a system header. */
#include <linux/printk.h>

/* #include_next is a GNU extension. This pragma suppresses the warning about it. */
#pragma GCC system_header
#include_next <linux/module.h>

#include <linux/err.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include "../uw_kernel_environment.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MODULE_NAME_LEN 56

struct module {
	char name[MODULE_NAME_LEN];
};

/* The function that module_exit() names; missing in a module that cannot be unloaded. */
extern void uw_module_exit(void) __attribute__((weak));

/*
 * Parses the arguments, calls `init`, then `exit`. Returns the program's exit status: 0, or the
 * errno value that init returned, or 2 if an argument is wrong. uw.seconds=N keeps the module
 * loaded for that long; uw.seconds=inf until SIGINT or SIGTERM. --help lists the parameters.
 */
int uw_kernel_main(int argc, char **argv, int (*init)(void), void (*exit_function)(void),
		   const struct kernel_param *const *params, const struct kernel_param *const *params_end);

#define module_init(function) \
	int main(int argc, char **argv) \
	{ \
		return uw_kernel_main(argc, argv, (function), uw_module_exit, __start_uw_params, __stop_uw_params); \
	} \
	extern int uw_unused_declaration
#define module_exit(function) \
	void uw_module_exit(void) \
	{ \
		(function)(); \
	} \
	extern int uw_unused_declaration
#define late_initcall(function) module_init(function)
#define subsys_initcall(function) module_init(function)
#define device_initcall(function) module_init(function)
#define core_initcall(function) module_init(function)
#define postcore_initcall(function) module_init(function)
#define arch_initcall(function) module_init(function)
#define fs_initcall(function) module_init(function)
#define rootfs_initcall(function) module_init(function)

#define MODULE_INFO(tag, info) extern int uw_unused_declaration
#define MODULE_LICENSE(text) extern int uw_unused_declaration
#define MODULE_AUTHOR(text) extern int uw_unused_declaration
#define MODULE_DESCRIPTION(text) extern int uw_unused_declaration
#define MODULE_VERSION(text) extern int uw_unused_declaration
#define MODULE_ALIAS(text) extern int uw_unused_declaration
#define MODULE_SOFTDEP(text) extern int uw_unused_declaration
#define MODULE_IMPORT_NS(ns) extern int uw_unused_declaration
#define MODULE_FIRMWARE(text) extern int uw_unused_declaration

static inline bool try_module_get(struct module *module)
{
	(void)module;
	return true;
}

static inline void module_put(struct module *module)
{
	(void)module;
}

static inline void __module_get(struct module *module)
{
	(void)module;
}

#ifdef __cplusplus
}
#endif

#endif
