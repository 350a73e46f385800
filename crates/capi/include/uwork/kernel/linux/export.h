/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Everything is visible that is not static. */
#ifndef UWORK_KERNEL_LINUX_EXPORT_H
#define UWORK_KERNEL_LINUX_EXPORT_H

#define EXPORT_SYMBOL(name) extern int uw_unused_declaration
#define EXPORT_SYMBOL_GPL(name) extern int uw_unused_declaration
#define EXPORT_SYMBOL_NS(name, ns) extern int uw_unused_declaration
#define EXPORT_SYMBOL_NS_GPL(name, ns) extern int uw_unused_declaration
/* Its name is that of the program. */
#define THIS_MODULE (&uw_kernel_this_module)

#ifdef __cplusplus
extern "C" {
#endif
extern struct module uw_kernel_this_module;
#ifdef __cplusplus
}
#endif

#endif
