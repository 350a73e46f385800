/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Everything is visible that is not static. */
#ifndef UWORK_KERNEL_LINUX_EXPORT_H
#define UWORK_KERNEL_LINUX_EXPORT_H

#define EXPORT_SYMBOL(name) extern int uw_unused_declaration
#define EXPORT_SYMBOL_GPL(name) extern int uw_unused_declaration
#define EXPORT_SYMBOL_NS(name, ns) extern int uw_unused_declaration
#define EXPORT_SYMBOL_NS_GPL(name, ns) extern int uw_unused_declaration
#define THIS_MODULE ((struct module *)NULL)

#endif
