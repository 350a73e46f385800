/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C library's header, for programs that include it behind linux/kernel.h or linux/init.h, whose
 * macros must not change its declarations.
 */
#pragma GCC system_header
#pragma push_macro("abs")
#undef abs
#pragma push_macro("__init")
#undef __init
#include_next <stdlib.h>
#pragma pop_macro("abs")
#pragma pop_macro("__init")
