/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions that only code instrumented by Rust's LLVM calls, and that the thread sanitizer's runtime of an older
 * compiler does not have. gcc calls the plain functions. These record no access: an access that they recorded would be
 * reported with the plain function on top of its stack, as one of the callers' C is, and could not be told from it.
 * Compiled without instrumentation, and so that no loop becomes a call of the plain function.
 */
#include <stddef.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int value, size_t size);

__attribute__((weak)) void *__tsan_memcpy(void *to, const void *from, size_t size)
{
	char *end = to;
	const char *source = from;

	while (size-- != 0)
		*end++ = *source++;
	return to;
}

__attribute__((weak)) void *__tsan_memmove(void *to, const void *from, size_t size)
{
	char *target = to;
	const char *source = from;

	if (target <= source)
		return __tsan_memcpy(to, from, size);
	while (size-- != 0)
		target[size] = source[size];
	return to;
}

__attribute__((weak)) void *__tsan_memset(void *to, int value, size_t size)
{
	char *end = to;

	while (size-- != 0)
		*end++ = (char)value;
	return to;
}

/*
 * Rust's standard library is not instrumented, so the sanitizer does not see the order that its
 * locks create inside this library. Those parts are checked by the models (ci/loom.sh). Races in
 * the callers' C code are reported, also on the library's threads.
 */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
	/*
	 * By the file, and by the mangled name where nothing is known of the file. What Rust's code frees has the runtime's
	 * own free() on top.
	 */
	return "race_top:.rs$\n"
	       "race_top:^_R\n"
	       "race:library/alloc/src/alloc.rs\n";
}
