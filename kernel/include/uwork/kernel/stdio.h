/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The C library's header, for programs that include it behind linux/kernel.h, whose macros must not
 * change its declarations.
 */
#pragma GCC system_header
#pragma push_macro("snprintf")
#undef snprintf
#pragma push_macro("sprintf")
#undef sprintf
#pragma push_macro("vsnprintf")
#undef vsnprintf
#pragma push_macro("sscanf")
#undef sscanf
#include_next <stdio.h>
#pragma pop_macro("snprintf")
#pragma pop_macro("sprintf")
#pragma pop_macro("vsnprintf")
#pragma pop_macro("sscanf")
