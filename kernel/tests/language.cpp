// SPDX-License-Identifier: MIT OR Apache-2.0
/* The kernel's names together with the standard library, whose headers follow. */
#include <linux/wait.h>
#include <linux/module.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <sys/wait.h>
#include <vector>

struct stamp {
	unsigned long jiffies;
};

int main()
{
	std::vector<int> values{ 3, 1, 2 };
	stamp now{ jiffies };

	std::sort(values.rbegin(), values.rend());
	return values[0] == 3 && jiffies - now.jiffies < 86400 * HZ && current->pid == task_pid_nr(current) && get_current() == current && P_ALL == 0 ? 0 : 1;
}
