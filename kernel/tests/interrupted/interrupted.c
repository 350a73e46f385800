// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A module that gets SIGINT or SIGTERM at a given time: in init and in exit it ends the process;
 * while the module is loaded, it unloads it.
 */
#include <linux/module.h>
#include <linux/signal.h>
#include <linux/workqueue.h>

static char *during = "never";
module_param(during, charp, 0);
static int signal_number = SIGTERM;
module_param_named(signal, signal_number, int, 0);

static void interrupt_fn(struct work_struct *work);
static DECLARE_DELAYED_WORK(interrupt_work, interrupt_fn);

/* Polls until the handler is installed, which is after init. */
static void interrupt_fn(struct work_struct *work)
{
	struct sigaction installed;

	(void)work;
	sigaction(signal_number, NULL, &installed);
	if (installed.sa_handler == SIG_DFL || installed.sa_handler == SIG_IGN)
		schedule_delayed_work(&interrupt_work, 1);
	else
		kill(current->tgid, signal_number);
}

static int __init interrupted_init(void)
{
	if (strcmp(during, "init") == 0)
		raise(signal_number);
	if (strcmp(during, "load") == 0)
		schedule_delayed_work(&interrupt_work, 1);
	return 0;
}

static void __exit interrupted_exit(void)
{
	cancel_delayed_work_sync(&interrupt_work);
	if (strcmp(during, "exit") == 0)
		raise(signal_number);
	pr_info("unloaded\n");
}

module_init(interrupted_init)
module_exit(interrupted_exit)
MODULE_LICENSE("Dual MIT/GPL");
