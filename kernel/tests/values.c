// SPDX-License-Identifier: MIT OR Apache-2.0
/* Values: numbers, strings, parameters, times, memory, atomics, per-CPU data, files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/module.h>
#include <linux/fs.h>
#include <linux/kallsyms.h>
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>
#include <linux/string_choices.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/unaligned.h>
#include <linux/nospec.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>
#include <asm/byteorder.h>
#include "check.h"

#define CONFIG_THERE 1
#define CONFIG_MODULAR_MODULE 1

static int level = 3;
static int set_level(const char *val, const struct kernel_param *kp)
{
	int n, error = kstrtoint(val, 0, &n);

	return error || n < 0 ? -EINVAL : param_set_int(val, kp);
}
static const struct kernel_param_ops level_ops = { .set = set_level, .get = param_get_int };
module_param_cb(level, &level_ops, &level, S_IRUGO | S_IWUSR);
static unsigned long count = 1;
module_param_cb(count, &param_ops_ulong, &count, 0644);
static int called = 0;
module_param_call(called, param_set_int, param_get_int, &called, 0444);
static char *names[4] = { "none" };
static int nr_names;
module_param_array(names, charp, &nr_names, 0444);
static bool quiet;
module_param(quiet, bool, S_IRUGO);

static void parameters(void)
{
	struct kernel_param param = { .name = "test" };
	char buf[32];
	unsigned int number;
	bool flag = false;
	u8 byte = 1;

	CHECK(level == 5 && count == 0x10 && called == -7 && nr_names == 2 && strcmp(names[1], "b") == 0 && quiet);
	param.arg = &number;
	CHECK(param_ops_uint.set("12", &param) == 0 && number == 12 && param_ops_uint.set("-1", &param) == -EINVAL);
	CHECK(param_set_uint_minmax("9", &param, 1, 8) == -EINVAL && param_set_uint_minmax("8", &param, 1, 8) == 0 && number == 8);
	CHECK(param_get_uint(buf, &param) == 2 && strcmp(buf, "8\n") == 0);
	param.arg = &flag;
	CHECK(param_ops_bool.set("on", &param) == 0 && flag && param_get_bool(buf, &param) == 2 && buf[0] == 'Y');
	CHECK(param_set_invbool("y", &param) == 0 && !flag);
	param.arg = &byte;
	CHECK(param_set_byte("256", &param) == -ERANGE && param_set_byte("255", &param) == 0 && byte == 255);
}

static int format(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int length;

	va_start(args, fmt);
	length = vscnprintf(buf, size, fmt, args);
	va_end(args);
	return length;
}

static void numbers(void)
{
	char *end, buf[64];
	u8 a = 0;
	u16 b = 0;
	u32 c = 0;
	u64 d = 0;
	s8 e = 0;
	s64 f = 0;

	CHECK(kstrtou8("255", 10, &a) == 0 && a == 255 && kstrtou8("256", 10, &a) == -ERANGE);
	CHECK(kstrtou16("0xffff\n", 0, &b) == 0 && b == 0xffff && kstrtou32("4294967296", 10, &c) == -ERANGE);
	CHECK(kstrtou64("18446744073709551615", 10, &d) == 0 && d == U64_MAX && kstrtos8("-129", 10, &e) == -ERANGE);
	CHECK(kstrtos8("-128", 10, &e) == 0 && e == S8_MIN && kstrtos64("x", 10, &f) == -EINVAL);
	CHECK(simple_strtoul("12ab", &end, 10) == 12 && strcmp(end, "ab") == 0);
	CHECK(simple_strtol("-0x10", &end, 0) == -16 && *end == '\0' && simple_strtoull(" 1", &end, 10) == 0 && *end == ' ');
	CHECK(memparse("3k", &end) == 3072 && *end == '\0' && memparse("0x10M,", &end) == 16ULL << 20 && *end == ',');
	CHECK(hex_to_bin('f') == 15 && hex_to_bin('G') == -1 && format(buf, 4, "%d", 123456) == 3 && format(buf, 9, "%d", 12) == 2);
	CHECK(int_pow(3, 4) == 81 && int_sqrt(99) == 9 && int_sqrt(100) == 10 && gcd(12, 18) == 6 && lcm(4, 6) == 12);
	CHECK(mult_frac(1000000007ULL, 3, 7) == 428571431 && DIV_ROUND_CLOSEST_ULL(7, 2) == 4);
	CHECK(reciprocal_scale(0x80000000u, 10) == 5 && upper_16_bits(0x12345678) == 0x1234 && lower_16_bits(0x12345678) == 0x5678);
	CHECK(S16_MIN == -32768 && S64_MIN < 0 && S32_MAX == 2147483647);
	CHECK(IS_ENABLED(CONFIG_THERE) && !IS_ENABLED(CONFIG_NOT_THERE) && IS_ENABLED(CONFIG_MODULAR));
	CHECK(IS_MODULE(CONFIG_MODULAR) && !IS_BUILTIN(CONFIG_MODULAR) && IS_BUILTIN(CONFIG_THERE));
	CHECK(strcmp(__stringify(CONFIG_THERE), "1") == 0 && typecheck(int, level) == 1);
	CHECK(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 0, 0) && sizeof(typeof_member(struct kernel_param, max)) == 4);
}

static void texts(void)
{
	static const char *const list[] = { "cpu", "cache", "numa" };
	char buf[128] = "a-b-c", *copy;
	u32 words[4];
	static const unsigned char bytes[] = "0123456789abcdef";

	CHECK(strcmp(str_yes_no(true), "yes") == 0 && strcmp(str_on_off(false), "off") == 0 && *str_plural(1) == '\0');
	CHECK(strcmp(strreplace(buf, '-', '+'), "a+b+c") == 0 && strstarts(buf, "a+") && str_has_prefix(buf, "a+b") == 3);
	CHECK(strcmp(skip_spaces(" \t x"), "x") == 0 && sysfs_match_string(list, "cache\n") == 1);
	CHECK(sysfs_match_string(list, "cach") == -EINVAL && !memchr_inv("aaa", 'a', 3) && *(char *)memchr_inv("aab", 'a', 3) == 'b');
	memset32(words, 0x01020304, 4);
	CHECK(words[3] == 0x01020304);
	copy = kmemdup_nul("abcdef", 3, GFP_KERNEL);
	CHECK(strcmp(copy, "abc") == 0);
	kfree(copy);
	CHECK(sysfs_emit_at(buf, 2, "%s", "xyz") == 3 && strcmp(buf, "a+xyz") == 0);
	CHECK(hex_dump_to_buffer(bytes, 4, 16, 1, buf, sizeof(buf), false) == 11 && strcmp(buf, "30 31 32 33") == 0);
	CHECK(hex_dump_to_buffer(bytes, 3, 16, 1, buf, sizeof(buf), true) == 52 && strcmp(buf + 49, "012") == 0);
	CHECK(hex_dump_to_buffer(bytes, 16, 16, 1, buf, 6, false) == 47 && strcmp(buf, "30 31") == 0);
	print_hex_dump(KERN_INFO, "dump ", DUMP_PREFIX_OFFSET, 16, 1, bytes, sizeof(bytes) - 1, true);
	CHECK(copy_from_user(buf, "user", 5) == 0 && strcmp(buf, "user") == 0 && put_user(7u, &words[0]) == 0 && words[0] == 7);
	CHECK(strncpy_from_user(buf, "abc", 8) == 3 && buf[3] == '\0' && strncpy_from_user(buf, "abcdef", 3) == 3);
	put_unaligned_be32(0x01020304, buf + 1);
	CHECK(buf[1] == 1 && buf[4] == 4 && get_unaligned_le32(buf + 1) == 0x04030201 && get_unaligned((u16 *)(void *)(buf + 1)) != 0);
	put_unaligned_le16(0x0102, buf + 3);
	CHECK(get_unaligned_be16(buf + 3) == 0x0201 && be16_to_cpu(cpu_to_be16(7)) == 7 && cpu_to_le64(1ULL) != cpu_to_be64(1ULL));
	CHECK(array_index_nospec(3u, 4u) == 3 && array_index_nospec(4u, 4u) == 0);
	CHECK(sprint_symbol(buf, (unsigned long)printf) > 0);
}

static void times(void)
{
	struct timespec64 a = { 1, 999999999 }, b = { 0, 2 }, sum = timespec64_add(a, b), now;
	struct ratelimit_state limit;
	ktime_t coarse;
	int i, may = 0;
	static DEFINE_RATELIMIT_STATE(hourly, 3600 * HZ, 2);

	CHECK(sum.tv_sec == 2 && sum.tv_nsec == 1 && timespec64_compare(&a, &b) > 0);
	sum = timespec64_sub(b, a);
	CHECK(sum.tv_sec == -2 && sum.tv_nsec == 3 && timespec64_to_ktime(sum) == -1999999997);
	CHECK(ktime_divns(1000, 10) == 100 && ktime_sub_us(5000, 3) == 2000 && ktime_add_safe(KTIME_MAX, 1) == KTIME_MAX);
	ktime_get_raw_ts64(&now);
	CHECK(timespec64_to_ns(&now) <= ktime_get_raw());
	coarse = ktime_get_coarse();
	CHECK(coarse <= ktime_get());
	CHECK(time_after64(5ULL, 4ULL) && time_before64(~0ULL, 1ULL) && !time_after_eq64(4ULL, 5ULL));
	CHECK(jiffies_to_clock_t(HZ) == USER_HZ && clock_t_to_jiffies(USER_HZ) == HZ && mul_u64_u32_shr(1ULL << 40, 6, 33) == 768);
	CHECK(time_in_range_open(4UL, 4UL, 5UL) && !time_in_range_open(5UL, 4UL, 5UL));
	CHECK(TICK_NSEC * HZ == NSEC_PER_SEC && jiffies_delta_to_msecs(-3) == 0 && nsecs_to_jiffies64(NSEC_PER_SEC) == HZ);
	for (i = 0; i < 5; i++)
		may += __ratelimit(&hourly);
	CHECK(may == 2 && hourly.missed == 3);
	ratelimit_state_init(&limit, 0, 0);
	CHECK(__ratelimit(&limit) == 1);
}

static void memory(void)
{
	unsigned long page = get_zeroed_page(GFP_KERNEL), more = __get_free_pages(GFP_KERNEL, 2);
	struct page *one = alloc_page(GFP_KERNEL);
	int *numbers = kvmalloc_array_node(4, sizeof(int), GFP_KERNEL, 0);

	CHECK(page && PAGE_ALIGNED(page) && !memchr_inv((void *)page, 0, PAGE_SIZE) && offset_in_page(page + 5) == 5);
	CHECK(PAGE_ALIGN(1UL) == PAGE_SIZE && get_order(1) == 0 && get_order(3 * PAGE_SIZE) == 2 && PAGE_ALIGNED(more));
	CHECK(virt_to_page((char *)page_address(one) + 17) == one);
	CHECK(numbers && !kvmalloc_array_node(SIZE_MAX, 2, GFP_KERNEL, 0) && array3_size(SIZE_MAX, 2, 1) == SIZE_MAX);
	CHECK(size_sub(5, 6) == SIZE_MAX && gfpflags_allow_blocking(GFP_KERNEL) && !gfpflags_allow_blocking(GFP_ATOMIC));
	free_page(page);
	free_pages(more, 2);
	__free_page(one);
	kvfree(numbers);
}

static DEFINE_PER_CPU(long, counter);

static void atomics(void)
{
	atomic_t a = ATOMIC_INIT(6);
	atomic64_t b = ATOMIC64_INIT(1);
	int old = 6;
	u64 word = 5;
	refcount_t refs = REFCOUNT_INIT(2);
	struct mutex lock;

	CHECK(atomic_xchg_relaxed(&a, 7) == 6 && atomic_cmpxchg_acquire(&a, 6, 1) == 7 && atomic_cmpxchg_release(&a, 7, 6) == 7);
	CHECK(atomic_try_cmpxchg_acquire(&a, &old, 12) && atomic_fetch_andnot(4, &a) == 12 && atomic_read(&a) == 8);
	CHECK(atomic_fetch_or_acquire(3, &a) == 8 && atomic_fetch_inc_relaxed(&a) == 11 && atomic_fetch_dec_release(&a) == 12);
	CHECK(!atomic_dec_unless_positive(&a) && atomic_inc_unless_negative(&a) && atomic_read(&a) == 12);
	CHECK(atomic64_fetch_xor_relaxed(3, &b) == 1 && atomic64_xchg_acquire(&b, S64_MIN) == 2 && !atomic64_inc_unless_negative(&b));
	CHECK(xchg_release(&word, 6ULL) == 5 && cmpxchg_relaxed(&word, 6ULL, 9ULL) == 6 && cmpxchg64(&word, 6ULL, 1ULL) == 9);
	CHECK(smp_cond_load_acquire(&word, VAL == 9) == 9 && atomic_cond_read_relaxed(&a, VAL > 0) == 12);
	CHECK(!refcount_dec_if_one(&refs) && refcount_dec_not_one(&refs) && !refcount_dec_not_one(&refs));
	mutex_init(&lock);
	CHECK(refcount_dec_and_mutex_lock(&refs, &lock) && mutex_is_locked(&lock) && !refcount_add_not_zero(1, &refs));
	mutex_unlock(&lock);
	atomic_set(&a, 2);
	CHECK(!atomic_dec_and_mutex_lock(&a, &lock) && atomic_dec_and_mutex_lock(&a, &lock) && mutex_is_locked(&lock));
	mutex_unlock(&lock);
	/* While the thread is bound to a CPU, its additions stay in that CPU's copy. */
	CHECK(set_cpus_allowed_ptr(current, cpumask_of(raw_smp_processor_id())) == 0);
	CHECK(this_cpu_add_return(counter, 5) == 5 && this_cpu_sub_return(counter, 2) == 3 && this_cpu_dec_return(counter) == 2);
	CHECK(this_cpu_cmpxchg(counter, 2, 12) == 2 && this_cpu_cmpxchg(counter, 2, 1) == 12);
	this_cpu_or(counter, 3);
	this_cpu_and(counter, 7);
	CHECK(raw_cpu_read(counter) == 7 && per_cpu(counter, raw_smp_processor_id()) == 7);
	set_cpus_allowed_ptr(current, cpu_online_mask);
}

/* The number of another descriptor of the memfd "lost". Asks nothing of the descriptors of other threads. */
static int other_number(int memory)
{
	char path[32], target[32];
	int number;

	for (number = 3; number < 1024; number++) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
		length = readlink(path, target, sizeof(target));
		if (number != memory && length >= 11 && !memcmp(target, "/memfd:lost", 11))
			return number;
	}
	return -1;
}

/* The program has given the number of a file to a pipe of its own, which is neither read nor written to nor closed. */
static void lost_file(void)
{
	int memory = memfd_create("lost", 0), ends[2], number;
	struct file *file;
	char path[32], buf[8] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	file = filp_open(path, O_RDWR, 0);
	number = other_number(memory);
	CHECK(!IS_ERR(file) && number > 0 && pipe(ends) == 0 && write(ends[1], "own", 3) == 3);
	CHECK(dup2(ends[0], number) == number);
	CHECK(kernel_read(file, buf, 3, NULL) == -EBADF && vfs_fsync(file, 0) == -EBADF);
	CHECK(dup2(ends[1], number) == number && kernel_write(file, "x", 1, NULL) == -EBADF);
	CHECK(vfs_llseek(file, 0, SEEK_SET) == -EBADF && filp_close(file, NULL) == -EBADF);
	CHECK(fcntl(number, F_GETFD) >= 0 && read(ends[0], buf, sizeof(buf)) == 3);
	close(number);
	close(ends[0]);
	close(ends[1]);
	close(memory);
}

#if !IS_INSTRUMENTED
static __thread bool fstat_fails;

/* Instead of the C library's. */
int fstat(int number, struct stat *identity)
{
	if (fstat_fails) {
		errno = ENOMEM;
		return -1;
	}
	return fstatat(number, "", identity, AT_EMPTY_PATH);
}

static void file_without_an_identity(void)
{
	int memory = memfd_create("lost", 0);
	struct file *file;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	fstat_fails = true;
	file = filp_open(path, O_RDWR, 0);
	fstat_fails = false;
	CHECK(PTR_ERR(file) == -ENOMEM);
	CHECK(other_number(memory) == -1);
	close(memory);
}
#endif

static void files(void)
{
	struct workqueue_struct *wq = alloc_workqueue("values", WQ_UNBOUND | WQ_SYSFS, 0);
	struct file *file = filp_open("/sys/bus/workqueue/devices/values/affinity_scope", O_RDWR | O_TRUNC, 0);
	char buf[32] = "", path[32];
	int memory = memfd_create("values", 0);

	CHECK(!IS_ERR(file) && (file->f_mode & FMODE_WRITE) && (file->f_flags & O_ACCMODE) == O_RDWR);
	CHECK(kernel_write(file, "numa", 4, &file->f_pos) == 4 && file->f_pos == 4);
	CHECK(vfs_llseek(file, 0, SEEK_SET) == 0 && kernel_read(file, buf, sizeof(buf), &file->f_pos) == 5);
	CHECK(strcmp(buf, "numa\n") == 0 && vfs_llseek(file, -6, SEEK_CUR) == -EINVAL && vfs_fsync(file, 0) == -EINVAL);
	filp_close(file, NULL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	file = filp_open(path, O_RDWR, 0);
	CHECK(vfs_write(file, "abc", 3, &file->f_pos) == 3 && kernel_write(file, "de", 2, &file->f_pos) == 2);
	CHECK(vfs_fsync(file, 1) == 0 && vfs_llseek(file, -3, SEEK_END) == 2 && vfs_read(file, buf, 9, &file->f_pos) == 3);
	CHECK(memcmp(buf, "cde", 3) == 0 && vfs_llseek(file, -1, SEEK_CUR) == 4);
	filp_close(file, NULL);
	close(memory);
	destroy_workqueue(wq);
}

static int __init values_init(void)
{
	parameters();
	numbers();
	texts();
	times();
	memory();
	atomics();
	files();
	lost_file();
#if !IS_INSTRUMENTED
	file_without_an_identity();
#endif
	return checked();
}
module_init(values_init)
MODULE_LICENSE("Dual MIT/GPL");
