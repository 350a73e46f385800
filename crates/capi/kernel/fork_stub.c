#include "fork.h"
void uw_task_fork(enum uw_fork at) { (void)at; }
void uw_rcu_fork(enum uw_fork at) { (void)at; }
