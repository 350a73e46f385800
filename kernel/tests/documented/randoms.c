// SPDX-License-Identifier: MIT OR Apache-2.0
/* Random numbers and hashes. */
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/random.h>
#include <linux/string.h>

static int __init random_init_module(void)
{
	struct rnd_state a, b;
	u8 bytes[32], zero[32] = { 0 };
	int i;

	prandom_seed_state(&a, 42);
	prandom_seed_state(&b, 42);
	for (i = 0; i < 100; i++)
		if (prandom_u32_state(&a) != prandom_u32_state(&b))
			return -EINVAL;
	get_random_bytes(bytes, sizeof(bytes));
	if (!memcmp(bytes, zero, sizeof(bytes)))
		return -EINVAL;
	for (i = 0; i < 100; i++)
		if (get_random_u32_below(10) >= 10 || get_random_u32_inclusive(5, 6) < 5)
			return -EINVAL;
	if (get_random_u64() == get_random_u64())
		return -EINVAL;
	prandom_bytes_state(&a, bytes, sizeof(bytes));
	if (hash_32(1, 4) >= 16 || hash_64(1, 8) >= 256 || hash_ptr(&a, 3) >= 8)
		return -EINVAL;
	pr_info("random: passed\n");
	return 0;
}

static void __exit random_exit(void)
{
}

module_init(random_init_module);
module_exit(random_exit);
MODULE_LICENSE("GPL");
