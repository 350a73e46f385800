/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The expansion of a macro as text. */
#ifndef UWORK_KERNEL_LINUX_STRINGIFY_H
#define UWORK_KERNEL_LINUX_STRINGIFY_H

#ifndef __stringify
#define UW_STRINGIFY(...) #__VA_ARGS__
#define __stringify(...) UW_STRINGIFY(__VA_ARGS__)
#endif

#endif
