#!/usr/bin/env python3
"""Compares `uwork sum` with sha256sum under xargs -P, b3sum, rclone, sha256deep and rhash.

Makes a tree of small files and one of large files, runs every contestant on both in turns, warm and
cold, checks that contestants of one algorithm print the same sums, and prints medians. Cold: before
each run the files are written back and dropped from the page cache (POSIX_FADV_DONTNEED), which
needs no privilege; the disk's own cache stays. A contestant whose program is missing is left out.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time

SMALL_FILES, SMALL_MAX = 8_000, 32 * 1024
LARGE_FILES, LARGE_SIZE = 4, 300 * 1024 * 1024


def make(folder):
    """Makes the trees `small` and `large`, always the same."""
    numbers = random.Random(1)
    for number in range(SMALL_FILES):
        path = os.path.join(folder, "small", f"{number % 100:02}", f"{number}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(numbers.randbytes(numbers.randrange(1, SMALL_MAX)))
    block = numbers.randbytes(1 << 20)
    os.makedirs(os.path.join(folder, "large"))
    for number in range(LARGE_FILES):
        with open(os.path.join(folder, "large", f"{number}"), "wb") as file:
            for _ in range(LARGE_SIZE // len(block)):
                file.write(block)


def drop_from_cache(folder):
    for parent, _, files in os.walk(folder):
        for name in files:
            file = os.open(os.path.join(parent, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def contestants(uwork, cpus):
    """Names, algorithms and commands; each runs in the folder of the tree."""
    every = "find . -type f -print0 | xargs -0"
    all_of_them = [
        ("uwork sum", "sha256", uwork, f"{uwork} sum ."),
        (f"xargs -P{cpus} sha256sum", "sha256", "sha256sum", f"{every} -P{cpus} -n64 sha256sum"),
        (f"xargs -P{cpus} -n1 sha256sum", "sha256", "sha256sum", f"{every} -P{cpus} -n1 sha256sum"),
        ("rclone hashsum", "sha256", "rclone", f"rclone hashsum sha256 --checkers {cpus} ."),
        ("sha256deep", "sha256", "sha256deep", f"sha256deep -r -l -j{cpus} ."),
        ("rhash", "sha256", "rhash", "rhash --sha256 -r ."),
        ("uwork sum -a blake3", "blake3", uwork, f"{uwork} sum -a blake3 ."),
        ("xargs b3sum", "blake3", "b3sum", f"{every} b3sum"),
    ]
    present = [one for one in all_of_them if shutil.which(one[2])]
    for name, _, program, _ in all_of_them:
        if not shutil.which(program):
            print(f"{name}: left out, {program} is missing")
    return present


def sums(output):
    """Files and their sums, whatever the order and the form of the paths."""
    lines = (line.split(maxsplit=1) for line in output.decode().splitlines())
    return sorted((os.path.normpath(name.lstrip("*")), digest) for digest, name in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--uwork", default="target/release/uwork", help="the command uwork")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args()
    runners = contestants(os.path.abspath(args.uwork), os.cpu_count())
    records = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        make(folder)
        for case in ["small", "large"]:
            tree = os.path.join(folder, case)
            for cache in ["warm", "cold"]:
                times, expected = {}, {}
                # A process for each of thousands of files measures the starts of processes.
                of_case = [one for one in runners if case == "large" or "-n1" not in one[0]]
                for _ in range(args.samples + 1):
                    for name, algorithm, _, command in of_case:
                        if cache == "cold":
                            drop_from_cache(tree)
                        start = time.monotonic()
                        done = subprocess.run(command, shell=True, cwd=tree, check=True, stdout=subprocess.PIPE)
                        times.setdefault(name, []).append((time.monotonic() - start) * 1000)
                        found = sums(done.stdout)
                        assert expected.setdefault(algorithm, found) == found, f"{name}: other sums"
                print(f"{case}, {cache}, ms [min .. max]")
                for name, list_of_ms in times.items():
                    # The first run of each is not counted.
                    ms = list_of_ms[1:]
                    print(f"  {name:28} {statistics.median(ms):8.0f} [{min(ms):.0f} .. {max(ms):.0f}]")
                    median = statistics.median(ms)
                    records.append({"case": case, "cache": cache, "runner": name, "ms": median})
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    main()
