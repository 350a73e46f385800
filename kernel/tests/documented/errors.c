// SPDX-License-Identifier: MIT OR Apache-2.0
/* Errors in pointers, unwinding with goto, and a load that fails on purpose is not this one. */
#include <linux/err.h>
#include <linux/errname.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

struct resource_set {
	char *name;
	void *buffer;
};

static int depth;

static struct resource_set *acquire(const char *name, int fail_at)
{
	struct resource_set *set;
	int err = -ENOMEM;

	if (!name)
		return NULL;
	set = kzalloc(sizeof(*set), GFP_KERNEL);
	if (!set)
		return ERR_PTR(-ENOMEM);
	depth++;
	if (fail_at == 1) {
		err = -ENODEV;
		goto err_set;
	}
	set->name = kasprintf(GFP_KERNEL, "%s-%pe", name, ERR_PTR(-EIO));
	if (!set->name)
		goto err_set;
	depth++;
	if (fail_at == 2) {
		err = -EPROBE_DEFER;
		goto err_name;
	}
	set->buffer = kvzalloc(100000, GFP_KERNEL);
	if (!set->buffer)
		goto err_name;
	depth++;
	return set;

err_name:
	kfree(set->name);
	depth--;
err_set:
	kfree(set);
	depth--;
	return ERR_PTR(err);
}

static void release(struct resource_set *set)
{
	kvfree(set->buffer);
	kfree(set->name);
	kfree(set);
	depth -= 3;
}

static const void *forward(int fail_at)
{
	struct resource_set *set = acquire("forward", fail_at);

	if (IS_ERR(set))
		return ERR_CAST(set);
	release(set);
	return NULL;
}

static int __init errors_init(void)
{
	struct resource_set *set;

	if (PTR_ERR(acquire("a", 1)) != -ENODEV || PTR_ERR_OR_ZERO(acquire("a", 2)) != -EPROBE_DEFER || depth)
		return -EINVAL;
	if (!IS_ERR_OR_NULL(acquire(NULL, 0)) || IS_ERR(NULL) || IS_ERR_VALUE(5UL))
		return -EINVAL;
	if (!IS_ERR(forward(1)) || forward(0))
		return -EINVAL;
	set = acquire("a", 0);
	if (IS_ERR(set))
		return PTR_ERR(set);
	if (strcmp(set->name, "a--EIO") || memchr_inv(set->buffer, 0, 100000)) {
		release(set);
		return -EINVAL;
	}
	release(set);
	if (WARN_ON_ONCE(depth))
		return -EINVAL;
	pr_info("errors: passed (%pe)\n", ERR_PTR(-ENODEV));
	return 0;
}

static void __exit errors_exit(void)
{
}

module_init(errors_init);
module_exit(errors_exit);
MODULE_LICENSE("GPL");
