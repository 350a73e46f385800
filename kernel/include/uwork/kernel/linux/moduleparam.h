/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Module parameters: arguments of the form name=value. */
#ifndef UWORK_KERNEL_LINUX_MODULEPARAM_H
#define UWORK_KERNEL_LINUX_MODULEPARAM_H

#include "../uw_kernel.h"
#include <linux/compiler.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/stat.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_param;

struct kernel_param_ops {
	unsigned int flags;
	int (*set)(const char *val, const struct kernel_param *kp);
	int (*get)(char *buffer, const struct kernel_param *kp);
	void (*free)(void *arg);
};

enum uw_kernel_param_type {
	UW_PARAM_byte,
	UW_PARAM_short,
	UW_PARAM_ushort,
	UW_PARAM_int,
	UW_PARAM_uint,
	UW_PARAM_long,
	UW_PARAM_ulong,
	UW_PARAM_ullong,
	UW_PARAM_hexint,
	UW_PARAM_bool,
	/* The expansion of bool, where bool is a macro. */
	UW_PARAM__Bool = UW_PARAM_bool,
	UW_PARAM_bint,
	UW_PARAM_invbool,
	UW_PARAM_charp,
	UW_PARAM_string,
	UW_PARAM_ops,
	UW_PARAM_description
};

struct kernel_param {
	const char *name;
	enum uw_kernel_param_type type;
	/* The variable that the parameter sets; for a description, its text. */
	void *arg;
	/* For a comma-separated list, the most values; for a string, its size in bytes. */
	unsigned int max;
	unsigned int *num;
	const struct kernel_param_ops *ops;
};

#define UW_KERNEL_PARAM(id, ...) \
	static const struct kernel_param UW_PASTE(uw_param_, id) = { __VA_ARGS__ }; \
	static const struct kernel_param *const UW_PASTE(uw_param_at_, id) \
		__attribute__((section("uw_params"), used)) = &UW_PASTE(uw_param_, id)

#define module_param(name, type, perm) module_param_named(name, name, type, perm)
#define module_param_named(name, value, type, perm) \
	UW_KERNEL_PARAM(name, #name, UW_PARAM_##type, &(value), 1, NULL, NULL)
#define module_param_array(name, type, nump, perm) module_param_array_named(name, name, type, nump, perm)
#define module_param_array_named(name, array, type, nump, perm) \
	UW_KERNEL_PARAM(name, #name, UW_PARAM_##type, (array), sizeof(array) / sizeof((array)[0]), \
			(unsigned int *)(void *)(nump), NULL)
#define module_param_string(name, string, len, perm) \
	UW_KERNEL_PARAM(name, #name, UW_PARAM_string, (string), (len), NULL, NULL)
#define module_param_cb(name, operations, argument, perm) \
	UW_KERNEL_PARAM(name, #name, UW_PARAM_ops, (argument), 1, NULL, (operations))
#define module_param_call(name, set, get, argument, perm) \
	static const struct kernel_param_ops UW_PASTE(uw_param_ops_, name) = { 0, (set), (get), NULL }; \
	module_param_cb(name, &UW_PASTE(uw_param_ops_, name), argument, perm)
#define module_param_named_unsafe(name, value, type, perm) module_param_named(name, value, type, perm)
#define module_param_hw(name, type, hwtype, perm) module_param(name, type, perm)
#define kernel_param_lock(module) ((void)(module))
#define kernel_param_unlock(module) ((void)(module))
#define module_param_unsafe(name, type, perm) module_param(name, type, perm)
#define core_param(name, var, type, perm) module_param_named(name, var, type, perm)
#define MODULE_PARM_DESC(name, text) \
	UW_KERNEL_PARAM(UW_PASTE(description_, name), #name, UW_PARAM_description, \
			(void *)(uintptr_t)(text), 0, NULL, NULL)

/* The parameters of the program that includes this header. NULL if it has none. */
extern const struct kernel_param *const __start_uw_params[] __attribute__((weak, visibility("hidden")));
extern const struct kernel_param *const __stop_uw_params[] __attribute__((weak, visibility("hidden")));

int param_set_byte(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_byte);
int param_get_byte(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_byte);
int param_set_short(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_short);
int param_get_short(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_short);
int param_set_ushort(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_ushort);
int param_get_ushort(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_ushort);
int param_set_int(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_int);
int param_get_int(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_int);
int param_set_uint(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_uint);
int param_get_uint(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_uint);
int param_set_long(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_long);
int param_get_long(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_long);
int param_set_ulong(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_ulong);
int param_get_ulong(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_ulong);
int param_set_ullong(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_ullong);
int param_get_ullong(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_ullong);
int param_set_hexint(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_hexint);
int param_get_hexint(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_hexint);
int param_set_bool(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_bool);
int param_get_bool(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_bool);
int param_set_invbool(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_invbool);
int param_get_invbool(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_invbool);
int param_set_charp(const char *val, const struct kernel_param *kp) UW_KERNEL_NAME(param_set_charp);
int param_get_charp(char *buffer, const struct kernel_param *kp) UW_KERNEL_NAME(param_get_charp);
/* -EINVAL if the value is not between the two. */
int param_set_uint_minmax(const char *val, const struct kernel_param *kp, unsigned int min, unsigned int max) UW_KERNEL_NAME(param_set_uint_minmax);

#define UW_PARAM_OPS(type) \
	static const struct kernel_param_ops param_ops_##type __attribute__((unused)) = { \
		0, param_set_##type, param_get_##type, NULL \
	}
UW_PARAM_OPS(byte);
UW_PARAM_OPS(short);
UW_PARAM_OPS(ushort);
UW_PARAM_OPS(int);
UW_PARAM_OPS(uint);
UW_PARAM_OPS(long);
UW_PARAM_OPS(ulong);
UW_PARAM_OPS(ullong);
UW_PARAM_OPS(hexint);
UW_PARAM_OPS(bool);
UW_PARAM_OPS(invbool);
UW_PARAM_OPS(charp);

#ifdef __cplusplus
}
#endif

#endif
