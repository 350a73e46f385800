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
#ifndef __cplusplus
/* A module without module_init() has these two functions, under these names. */
extern int init_module(void) __asm__("uw_module_bare_init") __attribute__((weak));
extern void cleanup_module(void) __asm__("uw_module_bare_exit") __attribute__((weak));
#endif

/*
 * Parses the arguments, calls `init`, then `exit`. Returns the program's exit status: 0, or the
 * errno value that init returned, or 2 if an argument is wrong. uw.seconds=N keeps the module
 * loaded for that long; uw.seconds=inf until SIGINT or SIGTERM. --help lists the parameters.
 */
int uw_kernel_main(int argc, char **argv, int (*init)(void), void (*exit_function)(void),
		   const struct kernel_param *const *params, const struct kernel_param *const *params_end);

#define UW_MAIN(init, exit_function) \
	int main(int argc, char **argv) \
	{ \
		return uw_kernel_main(argc, argv, (init), (exit_function), __start_uw_params, __stop_uw_params); \
	}
/* With or without a semicolon, as the kernel's. */
#define module_init(function) UW_MAIN(function, uw_module_exit)
#define module_exit(function) \
	void uw_module_exit(void) \
	{ \
		(function)(); \
	}
#ifndef __cplusplus
/* main() of a module that defines init_module(). Its definition there makes `main` a name of it. */
int uw_module_bare_main(int argc, char **argv) __attribute__((weak, visibility("hidden")));
__attribute__((weak, visibility("hidden"), used)) int uw_module_bare_main(int argc, char **argv)
{
	return uw_kernel_main(argc, argv, init_module, cleanup_module, __start_uw_params, __stop_uw_params);
}
#define init_module(...) \
	init_module(void); \
	__asm__(".globl main\n\t.set main, uw_module_bare_main"); \
	int init_module(__VA_ARGS__)
#endif
#define late_initcall(function) module_init(function)
#define subsys_initcall(function) module_init(function)
#define device_initcall(function) module_init(function)
#define core_initcall(function) module_init(function)
#define postcore_initcall(function) module_init(function)
#define arch_initcall(function) module_init(function)
#define fs_initcall(function) module_init(function)
#define rootfs_initcall(function) module_init(function)
#define device_initcall_sync(function) module_init(function)
#define late_initcall_sync(function) module_init(function)
#define __initcall(function) module_init(function)
#define __exitcall(function) module_exit(function)

#define MODULE_INFO(tag, info) extern int uw_unused_declaration
#define MODULE_LICENSE(text) extern int uw_unused_declaration
#define MODULE_AUTHOR(text) extern int uw_unused_declaration
#define MODULE_DESCRIPTION(text) extern int uw_unused_declaration
#define MODULE_VERSION(text) extern int uw_unused_declaration
#define MODULE_ALIAS(text) extern int uw_unused_declaration
#define MODULE_SOFTDEP(text) extern int uw_unused_declaration
#define MODULE_IMPORT_NS(ns) extern int uw_unused_declaration
#define MODULE_FIRMWARE(text) extern int uw_unused_declaration
#define MODULE_DEVICE_TABLE(type, name) extern int uw_unused_declaration

static inline bool try_module_get(struct module *module)
{
	(void)module;
	return true;
}

#define module_name(module) ((module)->name)

/* Modules are programs, which no other one can use. */
static inline int module_refcount(struct module *module)
{
	(void)module;
	return 0;
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
