// SPDX-License-Identifier: MIT OR Apache-2.0
/* Small helpers: bits, byte orders, texts, checked arithmetic, static calls, user memory. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/ratelimit.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <linux/string_choices.h>
#include <linux/uaccess.h>
#include <linux/wait_bit.h>
#include <asm/byteorder.h>

struct flexible {
	int count;
	u16 items[];
};

static int failed;

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%d: %s failed\n", __LINE__, #condition); \
			failed = 1; \
		} \
	} while (0)

static int one(int x)
{
	return x + 1;
}

static int two(int x)
{
	return x + 2;
}

static int added;

static void add(int x)
{
	added += x;
}

DEFINE_STATIC_CALL(adder, one);
EXPORT_STATIC_CALL_GPL(adder);
DEFINE_STATIC_CALL_NULL(optional, add);

static void test_bits(void)
{
	DECLARE_BITMAP(a, 100);
	DECLARE_BITMAP(b, 100);
	u32 words[4];
	unsigned long from, to, bit, sum = 0;

	bitmap_parselist("3-5,70,90-99", a, 100);
	for_each_set_bitrange(from, to, a, 100)
		sum = sum * 100 + (to - from);
	EXPECT(sum == 30110);
	sum = 0;
	for_each_set_bit_wrap(bit, a, 100, 98)
		sum += bit == 98 || bit == 97 ? bit : 1;
	EXPECT(sum == 98 + 97 + 12 && bit == 100);
	bitmap_shift_left(b, a, 10, 100);
	EXPECT(test_bit(13, b) && test_bit(80, b) && bitmap_weight(b, 100) == 4);
	bitmap_shift_right(b, b, 13, 100);
	EXPECT(test_bit(0, b) && test_bit(67, b) && bitmap_weight(b, 100) == 4);
	bitmap_to_arr32(words, a, 100);
	EXPECT(words[0] == 0x38 && words[2] == (1u << 6 | 0xfc000000) && words[3] == 0xf);
	bitmap_from_arr32(b, words, 100);
	EXPECT(bitmap_equal(a, b, 100));
	bitmap_fill(b, 64);
	bitmap_from_arr32(b, words, 32);
	EXPECT(b[0] == 0x38);
	EXPECT(rol16(0x8001, 1) == 3 && ror8(1, 1) == 0x80 && bits_per(8) == 4 && bits_per(0) == 1);
}

static void test_orders(void)
{
	__le32 little = cpu_to_le32(0x01020304);
	__be16 big = cpu_to_be16(0x0102);

	EXPECT(le32_to_cpup(&little) == 0x01020304 && be16_to_cpup(&big) == 0x0102);
	le32_add_cpu(&little, 1);
	be16_add_cpu(&big, 0xff);
	EXPECT(le32_to_cpu(little) == 0x01020305 && be16_to_cpu(big) == 0x0201 && swab32(0x01020304) == 0x04030201);
}

static void test_text(void)
{
	char text[8] = "abc", plain[4], user[] = "42\n";
	unsigned int number;
	bool value;
	u8 small;

	EXPECT(strlcat(text, "defgh", sizeof(text)) == 8 && !strcmp(text, "abcdefg"));
	EXPECT(memscan(text, 'c', 7) == text + 2 && memscan(text, 'z', 7) == text + 7);
	strtomem_pad(plain, "ab", '-');
	EXPECT(!memcmp(plain, "ab--", 4));
	memtostr(text, plain);
	EXPECT(!strcmp(text, "ab--"));
	EXPECT(kstrtouint_from_user(user, 3, 10, &number) == 0 && number == 42);
	EXPECT(kstrtou8_from_user("300", 3, 10, &small) == -ERANGE);
	EXPECT(kstrtobool_from_user("yes, please", 11, &value) == 0 && value);
	EXPECT(!strcmp(str_high_low(false), "low") && !strcmp(str_write_read(true), "write"));
}

static void test_numbers(void)
{
	DEFINE_FLEX(struct flexible, flexible, items, count, 3);
	u32 shifted;
	int negative;
	u64 rest;

	flexible->items[2] = 7;
	EXPECT(flexible->count == 3 && flexible->items[1] == 0);
	EXPECT(type_max(int) == INT_MAX && type_min(s8) == -128 && type_max(u16) == 65535 && type_min(u64) == 0);
	EXPECT(!check_shl_overflow(3u, 4, &shifted) && shifted == 48);
	EXPECT(check_shl_overflow(3u, 31, &shifted) && check_shl_overflow(1u, 32, &shifted));
	EXPECT(check_shl_overflow(1, 31, &negative) && check_shl_overflow(-1, 1, &negative));
	EXPECT(wrapping_add(u8, 200, 100) == 44);
	EXPECT(mul_u64_u64_shr(1ull << 40, 1ull << 40, 48) == 1ull << 32 && mul_u32_u32(~0u, 2) == 8589934590ull);
	EXPECT(iter_div_u64_rem(100, 30, &rest) == 3 && rest == 10);
	EXPECT(PFN_UP(4097) == 2 && PFN_DOWN(8191) == 1);
}

static void test_lists(void)
{
	struct hlist_node nodes[3], lonely;
	LLIST_HEAD(stack);
	HLIST_HEAD(from);
	HLIST_HEAD(to);
	struct llist_node element;

	hlist_add_head(&nodes[0], &from);
	hlist_add_head(&nodes[1], &from);
	hlist_add_head(&nodes[2], &to);
	hlist_splice_init(&from, &nodes[0], &to);
	EXPECT(hlist_empty(&from) && hlist_count_nodes(&to) == 3 && to.first == &nodes[1]);
	hlist_del(&nodes[2]);
	EXPECT(hlist_count_nodes(&to) == 2);
	INIT_HLIST_NODE(&lonely);
	hlist_add_fake(&lonely);
	EXPECT(!hlist_unhashed(&lonely) && hlist_fake(&lonely));
	hlist_del_init(&lonely);
	llist_add(&element, &stack);
	EXPECT(llist_del_first_init(&stack) == &element && !llist_on_list(&element));
}

static void test_user(void)
{
	struct { u32 a, b; } to, newer = { 5, 0 };

	EXPECT(copy_struct_from_user(&to, sizeof(to), &newer, 4) == 0 && to.a == 5 && to.b == 0);
	EXPECT(copy_struct_from_user(&to.a, 4, &newer, 8) == 0);
	newer.b = 1;
	EXPECT(copy_struct_from_user(&to.a, 4, &newer, 8) == -E2BIG);
	EXPECT(strnlen_user("abc", 10) == 4);
}

static void test_static_calls(void)
{
	EXPECT(static_call(adder)(1) == 2);
	static_call_update(adder, two);
	EXPECT(static_call(adder)(1) == 3 && static_call_mod(adder)(2) == 4);
	if (added == 0)
		static_call_cond(optional)(1);
	else
		failed = 1;
	EXPECT(added == 0);
	static_call_update(optional, add);
	static_call_cond(optional)(5);
	EXPECT(added == 5);
}

static int __init small_helpers_init(void)
{
	static int done;
	int i, said = 0;

	test_bits();
	test_orders();
	test_text();
	test_numbers();
	test_lists();
	test_user();
	test_static_calls();
	store_release_wake_up(&done, 1);
	EXPECT(done == 1 && module_refcount(THIS_MODULE) == 0);
	for (i = 0; i < 20; i++)
		said += printk_ratelimit();
	EXPECT(said == 10 && _THIS_IP_ != 0);
	pr_info("%s\n", failed ? "not all right" : "passed");
	return failed ? -EIO : 0;
}

static void __exit small_helpers_exit(void)
{
}

module_init(small_helpers_init);
module_exit(small_helpers_exit);
MODULE_LICENSE("GPL");
