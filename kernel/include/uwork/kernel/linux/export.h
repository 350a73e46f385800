/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Exported symbols: every function that is not static is visible anyway. */
#ifndef UWORK_KERNEL_LINUX_EXPORT_H
#define UWORK_KERNEL_LINUX_EXPORT_H

#define EXPORT_SYMBOL(name) extern int uw_unused_declaration
#define EXPORT_SYMBOL_GPL(name) extern int uw_unused_declaration
#define EXPORT_SYMBOL_NS(name, ns) extern int uw_unused_declaration
#define EXPORT_SYMBOL_NS_GPL(name, ns) extern int uw_unused_declaration
/* The module's name is the program's. */
#define THIS_MODULE (&uw_kernel_this_module)

#ifdef __cplusplus
extern "C" {
#endif
extern struct module uw_kernel_this_module;
#ifdef __cplusplus
}
#endif

#endif
