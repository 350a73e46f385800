// SPDX-License-Identifier: MIT OR Apache-2.0
/* Scope-based cleanup: guards, classes and free functions. */
#include <linux/cleanup.h>
#include <linux/cpu.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>

struct device {
	struct mutex lock;
	int opens;
	char *name;
};

static DEFINE_MUTEX(list_lock);
static DEFINE_SPINLOCK(stats_lock);
static DECLARE_RWSEM(config_sem);
DEFINE_STATIC_SRCU(users);
static int live_devices;

static void device_put(struct device *dev)
{
	live_devices--;
	kfree(dev->name);
	kfree(dev);
}

DEFINE_FREE(device_put, struct device *, if (!IS_ERR_OR_NULL(_T)) device_put(_T))

DEFINE_GUARD(device, struct device *, mutex_lock(&_T->lock), mutex_unlock(&_T->lock))
DEFINE_GUARD_COND(device, _try, mutex_trylock(&_T->lock))

static struct device *device_new(const char *name)
{
	struct device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return ERR_PTR(-ENOMEM);
	mutex_init(&dev->lock);
	dev->name = kstrdup(name, GFP_KERNEL);
	if (!dev->name) {
		kfree(dev);
		return ERR_PTR(-ENOMEM);
	}
	live_devices++;
	return dev;
}

DEFINE_CLASS(new_device, struct device *, if (!IS_ERR(_T)) device_put(_T), device_new(name), const char *name)

static struct device *device_open(const char *name, bool fail)
{
	struct device *dev __free(device_put) = device_new(name);

	if (IS_ERR(dev))
		return dev;
	scoped_guard(mutex, &dev->lock)
		dev->opens++;
	if (fail)
		return ERR_PTR(-EIO);
	return_ptr(dev);
}

static int try_to_open(struct device *dev)
{
	scoped_cond_guard(mutex_try, return -EBUSY, &dev->lock)
		dev->opens++;
	return 0;
}

static int count_opens(struct device *dev)
{
	guard(rcu)();
	guard(spinlock_irqsave)(&stats_lock);
	return dev->opens;
}

static int all_guards(void)
{
	char *buffer __free(kfree) = kmalloc(32, GFP_KERNEL);

	if (!buffer)
		return -ENOMEM;
	guard(mutex)(&list_lock);
	{
		guard(srcu)(&users);
		guard(preempt)();
		guard(spinlock_bh)(&stats_lock);
	}
	scoped_guard(cpus_read_lock) {
		guard(rwsem_read)(&config_sem);
	}
	scoped_guard(rwsem_write, &config_sem)
		strscpy(buffer, "done", 32);
	scoped_guard(spinlock, &stats_lock)
		buffer[0] = 'D';
	scoped_guard(irqsave)
		buffer[1] = 'O';
	return mutex_is_locked(&list_lock) && buffer[0] == 'D' ? 0 : -EINVAL;
}

static int __init cleanups_init(void)
{
	struct device *dev;
	int ret = 0;

	if (PTR_ERR_OR_ZERO(device_open("bad", true)) != -EIO || live_devices)
		return -EINVAL;
	dev = device_open("good", false);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	mutex_lock(&dev->lock);
	if (try_to_open(dev) != -EBUSY)
		ret = -EINVAL;
	mutex_unlock(&dev->lock);
	if (try_to_open(dev) || count_opens(dev) != 2)
		ret = -EINVAL;
	device_put(dev);
	{
		CLASS(new_device, scoped)("scoped");

		if (IS_ERR(scoped))
			return PTR_ERR(scoped);
		scoped_guard(device, scoped)
			scoped->opens++;
		if (scoped->opens != 1 || live_devices != 1)
			ret = -EINVAL;
	}
	ret = ret ?: all_guards();
	if (mutex_is_locked(&list_lock) || live_devices)
		ret = -EINVAL;
	if (!ret)
		pr_info("cleanups: passed\n");
	return ret;
}

static void __exit cleanups_exit(void)
{
}

module_init(cleanups_init);
module_exit(cleanups_exit);
MODULE_LICENSE("GPL");
