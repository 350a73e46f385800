"""Celery: celery_peer.py URL push|work CASE JOBS."""

import sys

from celery import Celery

import jobs

url, role, case, count = sys.argv[1:5]
app = Celery("peer", broker=url)
app.conf.update(
    task_ignore_result=True,
    # As the bridge: acknowledged after the run.
    task_acks_late=True,
    worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
tasks = {name: app.task(name=name)(run) for name, run in jobs.BY_CASE.items()}
if role == "push":
    with app.producer_or_acquire() as producer:
        for _ in range(int(count)):
            tasks[case].apply_async(producer=producer)
else:
    pool = ["-P", "threads", "-c", "256"] if case == "sleep" else ["-P", "prefork", "-c", "2"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    app.worker_main(["worker", *pool, *quiet])
