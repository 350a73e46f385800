"""The jobs of the Python peers: nothing, 1 ms of computing, 10 ms of sleep."""

import time


def noop():
    pass


def compute():
    end = time.perf_counter_ns() + 1_000_000
    while time.perf_counter_ns() < end:
        pass


def sleep():
    time.sleep(0.01)


BY_CASE = {"noop": noop, "compute": compute, "sleep": sleep}
