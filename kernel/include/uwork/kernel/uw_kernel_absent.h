/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions that modules ask for and that a process cannot have. Their use ends the compilation
 * with a line that says what to do instead. A program that has functions of these names itself
 * defines UW_KERNEL_HAS_ALL.
 */
#ifndef UWORK_KERNEL_UW_KERNEL_ABSENT_H
#define UWORK_KERNEL_UW_KERNEL_ABSENT_H

/* The declarations leave the arguments open. */
#pragma GCC system_header

#include "uw_kernel.h"

#if !defined(UW_KERNEL_HAS_ALL) && !defined(UW_KERNEL_LIBRARY)

#ifdef __cplusplus
extern "C" {
#define UW_KERNEL_ABSENT(name, text) long name(...) UW_KERNEL_INSTEAD(text)
#elif __STDC_VERSION__ > 201710L
#define UW_KERNEL_ABSENT(name, text) long name(...) UW_KERNEL_INSTEAD(text)
#else
#define UW_KERNEL_ABSENT(name, text) long name() UW_KERNEL_INSTEAD(text)
#endif

#define UW_KERNEL_ABSENT_INTERRUPTS(name) \
	UW_KERNEL_ABSENT(name, "a process has no interrupts: a work item, a tasklet or an hrtimer runs later, in another context")
UW_KERNEL_ABSENT_INTERRUPTS(request_irq);
UW_KERNEL_ABSENT_INTERRUPTS(request_threaded_irq);
UW_KERNEL_ABSENT_INTERRUPTS(request_any_context_irq);
UW_KERNEL_ABSENT_INTERRUPTS(devm_request_irq);
UW_KERNEL_ABSENT_INTERRUPTS(devm_request_threaded_irq);
UW_KERNEL_ABSENT_INTERRUPTS(free_irq);
UW_KERNEL_ABSENT_INTERRUPTS(enable_irq);
UW_KERNEL_ABSENT_INTERRUPTS(disable_irq);
UW_KERNEL_ABSENT_INTERRUPTS(disable_irq_nosync);
UW_KERNEL_ABSENT_INTERRUPTS(synchronize_irq);
UW_KERNEL_ABSENT_INTERRUPTS(raise_softirq);
UW_KERNEL_ABSENT_INTERRUPTS(open_softirq);

#define UW_KERNEL_ABSENT_DEVICES(name) \
	UW_KERNEL_ABSENT(name, "a process has no devices: module parameters and pr_info() are the ways in and out")
UW_KERNEL_ABSENT_DEVICES(register_chrdev);
UW_KERNEL_ABSENT_DEVICES(unregister_chrdev);
UW_KERNEL_ABSENT_DEVICES(alloc_chrdev_region);
UW_KERNEL_ABSENT_DEVICES(register_chrdev_region);
UW_KERNEL_ABSENT_DEVICES(unregister_chrdev_region);
UW_KERNEL_ABSENT_DEVICES(poll_wait);
UW_KERNEL_ABSENT_DEVICES(fasync_helper);
UW_KERNEL_ABSENT_DEVICES(kill_fasync);

#define UW_KERNEL_ABSENT_FILES(name) \
	UW_KERNEL_ABSENT(name, "a process has no such file system: module parameters and pr_info() are the ways in and out")
UW_KERNEL_ABSENT_FILES(register_filesystem);
UW_KERNEL_ABSENT_FILES(unregister_filesystem);
UW_KERNEL_ABSENT_FILES(simple_open);
UW_KERNEL_ABSENT_FILES(nonseekable_open);
UW_KERNEL_ABSENT_FILES(noop_llseek);

#define UW_KERNEL_ABSENT_MAPPINGS(name) \
	UW_KERNEL_ABSENT(name, "a process has no page tables of its own: vmalloc() and alloc_pages() give memory that is mapped")
UW_KERNEL_ABSENT_MAPPINGS(ioremap);
UW_KERNEL_ABSENT_MAPPINGS(iounmap);
UW_KERNEL_ABSENT_MAPPINGS(memremap);
UW_KERNEL_ABSENT_MAPPINGS(memunmap);
UW_KERNEL_ABSENT_MAPPINGS(remap_pfn_range);
UW_KERNEL_ABSENT_MAPPINGS(vm_insert_page);
UW_KERNEL_ABSENT_MAPPINGS(get_user_pages);
UW_KERNEL_ABSENT_MAPPINGS(get_user_pages_fast);
UW_KERNEL_ABSENT_MAPPINGS(pin_user_pages);

#define UW_KERNEL_ABSENT_TASKS(name) \
	UW_KERNEL_ABSENT(name, "a process does not see the tasks of others: keep the task_struct that kthread_run() returns")
UW_KERNEL_ABSENT_TASKS(for_each_process);
UW_KERNEL_ABSENT_TASKS(for_each_thread);
UW_KERNEL_ABSENT_TASKS(find_task_by_vpid);
UW_KERNEL_ABSENT_TASKS(find_get_pid);
UW_KERNEL_ABSENT_TASKS(get_pid_task);
UW_KERNEL_ABSENT_TASKS(pid_task);

#define UW_KERNEL_ABSENT_MODULES(name) \
	UW_KERNEL_ABSENT(name, "a process has no modules that can be loaded: link with the code, or use dlopen() of the C library")
UW_KERNEL_ABSENT_MODULES(request_module);
UW_KERNEL_ABSENT_MODULES(__symbol_get);
UW_KERNEL_ABSENT_MODULES(__symbol_put);
UW_KERNEL_ABSENT_MODULES(symbol_put_addr);

#define UW_KERNEL_ABSENT_SYMBOLS(name) \
	UW_KERNEL_ABSENT(name, "a process does not see the kernel's symbols: dlsym() of the C library finds its own")
UW_KERNEL_ABSENT_SYMBOLS(kallsyms_lookup_name);
UW_KERNEL_ABSENT_SYMBOLS(kallsyms_on_each_symbol);

#define UW_KERNEL_ABSENT_PROGRAMS(name) \
	UW_KERNEL_ABSENT(name, "a process starts programs with posix_spawn() of the C library")
UW_KERNEL_ABSENT_PROGRAMS(call_usermodehelper);
UW_KERNEL_ABSENT_PROGRAMS(call_usermodehelper_setup);
UW_KERNEL_ABSENT_PROGRAMS(call_usermodehelper_exec);

#define UW_KERNEL_ABSENT_HOTPLUG(name) \
	UW_KERNEL_ABSENT(name, "the CPUs of a process do not go offline: cpuhp_setup_state() calls the functions once")
UW_KERNEL_ABSENT_HOTPLUG(register_cpu_notifier);
UW_KERNEL_ABSENT_HOTPLUG(unregister_cpu_notifier);

#define UW_KERNEL_ABSENT_HALT(name) \
	UW_KERNEL_ABSENT(name, "a process has no kernel to stop: exit() of the C library, or panic()")
UW_KERNEL_ABSENT_HALT(register_reboot_notifier);
UW_KERNEL_ABSENT_HALT(unregister_reboot_notifier);
UW_KERNEL_ABSENT_HALT(kernel_restart);
UW_KERNEL_ABSENT_HALT(kernel_halt);
UW_KERNEL_ABSENT_HALT(kernel_power_off);
UW_KERNEL_ABSENT_HALT(orderly_poweroff);
UW_KERNEL_ABSENT_HALT(emergency_restart);

#define UW_KERNEL_ABSENT_SOCKETS(name) \
	UW_KERNEL_ABSENT(name, "sockets are those of the C library")
UW_KERNEL_ABSENT_SOCKETS(sock_create);
UW_KERNEL_ABSENT_SOCKETS(sock_create_kern);
UW_KERNEL_ABSENT_SOCKETS(sock_release);
UW_KERNEL_ABSENT_SOCKETS(kernel_bind);
UW_KERNEL_ABSENT_SOCKETS(kernel_listen);
UW_KERNEL_ABSENT_SOCKETS(kernel_accept);
UW_KERNEL_ABSENT_SOCKETS(kernel_connect);
UW_KERNEL_ABSENT_SOCKETS(kernel_sendmsg);
UW_KERNEL_ABSENT_SOCKETS(kernel_recvmsg);

#ifdef __cplusplus
}
#endif

#endif
#endif
