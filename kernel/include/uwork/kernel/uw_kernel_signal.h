/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The numbers of signals. <signal.h> declares functions as well; it may follow, and defines the same
 * numbers.
 */
#ifndef UWORK_KERNEL_UW_KERNEL_SIGNAL_H
#define UWORK_KERNEL_UW_KERNEL_SIGNAL_H

#if defined(__cplusplus) || defined(__mips__) || defined(__sparc__) || defined(__alpha__) || defined(__hppa__)
#include <signal.h>
#elif !defined(SIGHUP)
#define SIGHUP 1
#define SIGINT 2
#define SIGQUIT 3
#define SIGILL 4
#define SIGTRAP 5
#define SIGABRT 6
#define SIGBUS 7
#define SIGFPE 8
#define SIGKILL 9
#define SIGUSR1 10
#define SIGSEGV 11
#define SIGUSR2 12
#define SIGPIPE 13
#define SIGALRM 14
#define SIGTERM 15
#define SIGSTKFLT 16
#define SIGCHLD 17
#define SIGCONT 18
#define SIGSTOP 19
#define SIGTSTP 20
#define SIGTTIN 21
#define SIGTTOU 22
#define SIGURG 23
#define SIGXCPU 24
#define SIGXFSZ 25
#define SIGVTALRM 26
#define SIGPROF 27
#define SIGWINCH 28
#define SIGIO 29
#define SIGPOLL SIGIO
#define SIGPWR 30
#define SIGSYS 31
#endif

#endif
