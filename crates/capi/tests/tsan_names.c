/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Names that code instrumented by a recent LLVM calls, and the thread sanitizer's runtime of an older compiler does not
 * have. That runtime intercepts the plain functions, which is the same. Compiled without instrumentation.
 */
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int value, size_t size);

__attribute__((weak)) void *__tsan_memcpy(void *to, const void *from, size_t size)
{
	return memcpy(to, from, size);
}

__attribute__((weak)) void *__tsan_memmove(void *to, const void *from, size_t size)
{
	return memmove(to, from, size);
}

__attribute__((weak)) void *__tsan_memset(void *to, int value, size_t size)
{
	return memset(to, value, size);
}

/*
 * Rust's own library is not instrumented, so what its locks order is not seen inside ours. What happens there is
 * left to the models (ci/loom.sh); races in the callers' C, on the library's threads too, are reported.
 */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
	return "race_top:^_R\n"
	       "race_top:^uwork\n"
	       "race_top:^core::\n"
	       "race_top:^alloc::\n"
	       "race_top:^std::\n"
	       "race_top:^<\n"
	       "race_top:^hashbrown::\n"
	       /* Built with line tables only, functions have no paths in their names: then the file tells. */
	       "race_top:crates/engine/src/\n"
	       "race_top:crates/uwork/src/\n"
	       "race_top:crates/capi/src/\n"
	       "race_top:/rustc/\n"
	       "race_top:library/alloc/src/\n"
	       "race_top:library/core/src/\n"
	       "race_top:library/std/src/\n"
	       "race_top:/hashbrown-\n";
}
