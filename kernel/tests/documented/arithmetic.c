// SPDX-License-Identifier: MIT OR Apache-2.0
/* sort, min and max, powers of two, bit fields, bitmaps, overflow checks. */
#include <linux/array_size.h>
#include <linux/bitfield.h>
#include <linux/bitmap.h>
#include <linux/bits.h>
#include <linux/bsearch.h>
#include <linux/build_bug.h>
#include <linux/log2.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/sort.h>
#include <linux/string.h>

#define CTRL_ENABLE	BIT(0)
#define CTRL_MODE	GENMASK(5, 4)
#define CTRL_COUNT	GENMASK(15, 8)

#if BITS_PER_LONG == 64
#define WIDE_ONE	(1UL << 40)
#else
#define WIDE_ONE	1UL
#endif

static DECLARE_BITMAP(ids, 128);

static int cmp_int(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

struct packet {
	unsigned int nr;
	int data[] __counted_by(nr);
};

static int __init arithmetic_init(void)
{
	int values[] = { 5, 3, 9, 1, 7 };
	int key = 7, *found;
	unsigned int bit, count = 0;
	unsigned long mask = 0;
	size_t bytes;
	u32 reg;
	int sum, i;

	BUILD_BUG_ON(sizeof(u64) != 8);
	static_assert(ARRAY_SIZE(values) == 5);

	sort(values, ARRAY_SIZE(values), sizeof(values[0]), cmp_int, NULL);
	for (i = 1; i < ARRAY_SIZE(values); i++)
		if (values[i - 1] > values[i])
			return -EINVAL;
	found = bsearch(&key, values, ARRAY_SIZE(values), sizeof(values[0]), cmp_int);
	if (!found || *found != 7)
		return -EINVAL;

	if (min(3, 4) != 3 || max_t(long, -1, 2) != 2 || min3(3, 1, 2) != 1 || clamp(15, 0, 10) != 10 ||
	    clamp_val(-3, 0, 10) != 0 || umin(4u, 5ul) != 4 || min_not_zero(0, 8) != 8)
		return -EINVAL;
	swap(values[0], values[4]);
	if (values[0] != 9 || abs(-4) != 4 || abs_diff(3, 9) != 6)
		return -EINVAL;
	if (DIV_ROUND_UP(10, 4) != 3 || roundup(10, 4) != 12 || round_up(10, 8) != 16 || rounddown(10, 4) != 8 ||
	    DIV_ROUND_CLOSEST(7, 2) != 4 || ALIGN(13, 8) != 16 || !IS_ALIGNED(64, 32))
		return -EINVAL;
	if (ilog2(1024) != 10 || roundup_pow_of_two(100) != 128 || rounddown_pow_of_two(100) != 64 ||
	    !is_power_of_2(64) || order_base_2(100) != 7 || int_sqrt(99) != 9)
		return -EINVAL;
	if (fls(0x10) != 5 || __ffs(0x10) != 4 || ffs(0) != 0 || fls64(1ULL << 40) != 41 || hweight32(0xff) != 8 ||
	    rol32(0x80000001, 1) != 3 || ffz(7) != 3 || WIDE_ONE == 0)
		return -EINVAL;

	reg = CTRL_ENABLE | FIELD_PREP(CTRL_MODE, 2) | FIELD_PREP(CTRL_COUNT, 200);
	if (FIELD_GET(CTRL_MODE, reg) != 2 || FIELD_GET(CTRL_COUNT, reg) != 200 || !FIELD_FIT(CTRL_MODE, 3) ||
	    u32_get_bits(reg, CTRL_COUNT) != 200 || lower_32_bits(1ULL << 33) || upper_32_bits(1ULL << 33) != 2)
		return -EINVAL;

	bitmap_zero(ids, 128);
	bitmap_set(ids, 10, 5);
	__set_bit(100, ids);
	for_each_set_bit(bit, ids, 128)
		count++;
	if (count != 6 || bitmap_weight(ids, 128) != 6 || find_first_bit(ids, 128) != 10 ||
	    find_next_zero_bit(ids, 128, 10) != 15 || find_last_bit(ids, 128) != 100 ||
	    test_and_clear_bit(100, ids) != 1 || bitmap_empty(ids, 128) ||
	    bitmap_find_next_zero_area(ids, 128, 0, 20, 0) != 15)
		return -EINVAL;
	__assign_bit(3, &mask, true);
	if (mask != BIT(3) || BIT_WORD(64) != 64 / BITS_PER_LONG)
		return -EINVAL;

	if (!check_add_overflow(INT_MAX, 1, &sum) || check_mul_overflow(1000, 1000, &sum) || sum != 1000000)
		return -EINVAL;
	bytes = struct_size((struct packet *)NULL, data, 4);
	if (bytes != 20 || size_mul(SIZE_MAX, 2) != SIZE_MAX || array_size(3, 4) != 12)
		return -EINVAL;
	pr_info("arithmetic: passed\n");
	return 0;
}

static void __exit arithmetic_exit(void)
{
}

module_init(arithmetic_init);
module_exit(arithmetic_exit);
MODULE_LICENSE("GPL");
