"""Celery: celery_peer.py URL push|work CASE JOBS. lab/peers/README.md has the settings' sources."""

import os
import sys

from celery import Celery

import jobs

url, role, case, count = sys.argv[1:5]
app = Celery("peer", broker=url)
app.conf.update(
    task_ignore_result=True,
    # As the bridge: acknowledged after the run.
    task_acks_late=True,
    worker_prefetch_multiplier=128,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
tasks = {name: app.task(name=name)(run) for name, run in jobs.BY_CASE.items()}
if role == "push":
    with app.producer_or_acquire() as producer:
        for _ in range(int(count)):
            tasks[case].apply_async(producer=producer)
else:
    cpus = len(os.sched_getaffinity(0))
    name = "peer0"
    if case == "sleep":
        # The threads of a process share one lock, so each CPU has a process.
        pool = ["-P", "threads", "-c", str(256 // cpus)]
        for number in range(1, cpus):
            if os.fork() == 0:
                name = f"peer{number}"
                break
    else:
        pool = ["-P", "prefork", "-c", str(cpus)]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    app.worker_main(["worker", "-n", f"{name}@%h", *pool, *quiet])
