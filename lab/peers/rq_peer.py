"""RQ: rq_peer.py URL push|work CASE JOBS. The worker forks no process for each job.

lab/peers/README.md has the settings' sources.
"""

import multiprocessing
import os
import sys

from redis import Redis
from rq import Queue, SimpleWorker

import jobs


def work(url):
    SimpleWorker(["default"], connection=Redis.from_url(url)).work(logging_level="ERROR")


if __name__ == "__main__":
    url, role, case, count = sys.argv[1:5]
    if role == "push":
        queue = Queue(connection=Redis.from_url(url))
        left = int(count)
        while left > 0:
            batch = min(left, 1000)
            data = [Queue.prepare_data(jobs.BY_CASE[case], result_ttl=0) for _ in range(batch)]
            queue.enqueue_many(data)
            left -= batch
    else:
        # A worker runs one job at a time.
        number = 16 if case == "sleep" else len(os.sched_getaffinity(0))
        workers = [multiprocessing.Process(target=work, args=(url,)) for _ in range(number)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
