/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A macro's value as text. */
#ifndef UWORK_KERNEL_LINUX_STRINGIFY_H
#define UWORK_KERNEL_LINUX_STRINGIFY_H

#ifndef __stringify
#define UW_STRINGIFY(...) #__VA_ARGS__
#define __stringify(...) UW_STRINGIFY(__VA_ARGS__)
#endif

#endif
