// SPDX-License-Identifier: MIT OR Apache-2.0
/* Hexadecimal text, searches with a limit, orders, bit searches, dates, checksums, grouped members. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/bitrev.h>
#include <linux/crc32.h>
#include <linux/find.h>
#include <linux/hex.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/time64.h>
#include <linux/uaccess.h>

struct packet {
	u8 type;
	struct_group(address,
		u32 from;
		u32 to;
	);
	union {
		DECLARE_FLEX_ARRAY(u8, bytes);
		DECLARE_FLEX_ARRAY(u16, words);
	};
};

static int failed;

#define EXPECT(condition) \
	do { \
		if (!(condition)) { \
			pr_err("%d: %s failed\n", __LINE__, #condition); \
			failed = 1; \
		} \
	} while (0)

static void test_text(void)
{
	char text[9] = "", padded[8] = "xxxxxxx";
	u8 bytes[4];
	char *copy;

	EXPECT(hex2bin(bytes, "00fFa91c", 4) == 0 && bytes[1] == 0xff && bytes[2] == 0xa9);
	EXPECT(hex2bin(bytes, "0g", 1) == -EINVAL && hex2bin(bytes, "g0", 1) == -EINVAL);
	EXPECT(bin2hex(text, bytes, 4) == text + 8 && !strcmp(text, "00ffa91c"));
	EXPECT(strnchr("abc", 2, 'c') == NULL && *strnchr("abc", 3, 'c') == 'c' && !strnchr("a", 9, 'b'));
	EXPECT(strnstr("haystack", "stack", 7) == NULL && !strcmp(strnstr("haystack", "stack", 8), "stack"));
	EXPECT(!strcmp(kbasename("/a/b"), "b") && !strcmp(kbasename("c"), "c"));
	EXPECT(strscpy_pad(padded, "ab") == 2 && mem_is_zero(padded + 2, 6));
	EXPECT(strscpy_pad(padded, "too long a text") == -E2BIG && padded[7] == '\0');
	copy = memdup_user("user", 5);
	EXPECT(!IS_ERR(copy) && !strcmp(copy, "user"));
	kfree(copy);
	copy = strndup_user("user", 4);
	EXPECT(PTR_ERR(copy) == -EINVAL);
	copy = memdup_user_nul("user", 2);
	EXPECT(!strcmp(copy, "us"));
	kfree(copy);
}

static void test_numbers(void)
{
	const int values[] = { 3, -7, 12, 0 };

	EXPECT(max_array(values, 4) == 12 && min_array(values, 4) == -7);
	EXPECT(in_range(5, 5, 1) && !in_range(6, 5, 1) && !in_range(4, 5, 1));
	EXPECT(get_count_order(0) == -1 && get_count_order(1) == 0 && get_count_order(5) == 3 && get_count_order(8) == 3);
	EXPECT(fls_long(0) == 0 && fls_long(1ul << 40 >> 8) == 33);
	EXPECT(ffs(0) == 0 && ffs(0x18) == 4);
	EXPECT(mktime64(1970, 1, 1, 0, 0, 0) == 0 && mktime64(2000, 2, 29, 23, 59, 59) == 951868799);
	EXPECT(mktime64(2026, 11, 25, 12, 0, 0) == 1795608000);
	EXPECT(bitrev8(0x01) == 0x80 && bitrev32(0x12345678) == 0x1e6a2c48);
	/* The check values of the polynomials. */
	EXPECT((crc32_le(~0u, "123456789", 9) ^ ~0u) == 0xcbf43926 && (crc32c(~0u, "123456789", 9) ^ ~0u) == 0xe3069283);
	EXPECT((crc32_be(~0u, "123456789", 9) ^ ~0u) == 0xfc891918);
	EXPECT(SZ_64K == 65536 && SZ_1G == 1 << 30);
}

static void test_bits(void)
{
	DECLARE_BITMAP(a, 128);
	DECLARE_BITMAP(b, 128);
	DECLARE_BITMAP(c, 128);

	EXPECT(bitmap_parselist("0-3,64,100-119:1/10\n", a, 128) == 0 && bitmap_weight(a, 128) == 7 && test_bit(110, a));
	EXPECT(bitmap_parselist("", a, 128) == 0 && bitmap_empty(a, 128));
	EXPECT(bitmap_parselist("all", a, 100) == 0 && bitmap_weight(a, 128) == 100);
	EXPECT(bitmap_parselist("ALL:1/2", a, 100) == 0 && bitmap_weight(a, 128) == 50);
	EXPECT(bitmap_parselist("5-N", a, 128) == 0 && find_first_bit(a, 128) == 5 && bitmap_weight(a, 128) == 123);
	EXPECT(bitmap_parselist("128", a, 128) == -ERANGE && bitmap_parselist("3-1", a, 128) == -EINVAL);
	EXPECT(bitmap_parselist("1x", a, 128) == -EINVAL && bitmap_parselist("-1", a, 128) == -EINVAL);
	EXPECT(bitmap_parselist("0-7:3/0", a, 128) == -EINVAL && bitmap_parselist("0-7:3", a, 128) == -EINVAL);

	bitmap_parselist("1,3,70,90", a, 128);
	bitmap_parselist("3,70,90,91", b, 128);
	bitmap_parselist("70", c, 128);
	EXPECT(find_nth_and_bit(a, b, 128, 0) == 3 && find_nth_and_bit(a, b, 128, 2) == 90);
	EXPECT(find_nth_and_bit(a, b, 128, 3) == 128);
	EXPECT(find_first_and_and_bit(a, b, c, 128) == 70);
	EXPECT(find_next_and_bit_wrap(a, b, 128, 91) == 3 && find_next_and_bit_wrap(a, b, 128, 70) == 70);
	bitmap_zero(c, 128);
	EXPECT(find_next_and_bit_wrap(a, c, 128, 64) == 128 && find_next_bit_wrap(a, 128, 91) == 1);
	EXPECT(find_next_bit_wrap(c, 128, 5) == 128);
	EXPECT(bitmap_find_free_region(c, 128, 3) == 0 && bitmap_find_free_region(c, 128, 3) == 8);
	EXPECT(bitmap_allocate_region(c, 8, 2) == -EBUSY);
	bitmap_release_region(c, 0, 3);
	EXPECT(bitmap_weight(c, 128) == 8 && bitmap_allocate_region(c, 0, 2) == 0);
}

static void test_members(void)
{
	struct packet *packet = kzalloc(struct_size(packet, bytes, 4), GFP_KERNEL);

	packet->from = 1;
	packet->to = 2;
	packet->words[1] = 0xffff;
	EXPECT(sizeof(packet->address) == 8 && packet->bytes[2] == 0xff && packet->bytes[3] == 0xff);
	memset(&packet->address, 0, sizeof(packet->address));
	EXPECT(packet->from == 0 && packet->to == 0);
	kfree(packet);
}

static int __init numbers_and_text_init(void)
{
	test_text();
	test_numbers();
	test_bits();
	test_members();
	pr_info("%s\n", failed ? "not all right" : "passed");
	return failed ? -EIO : 0;
}

static void __exit numbers_and_text_exit(void)
{
}

module_init(numbers_and_text_init);
module_exit(numbers_and_text_exit);
MODULE_LICENSE("GPL");
