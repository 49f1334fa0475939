#!/usr/bin/env python3
"""kernel-memory.py FILE: until SIGTERM, how much the host's kernel memory has grown at most, in MiB.

Everything that is in use, less what belongs to processes and caches and less the free pages in
the lists of the CPUs. The number is in FILE all the time, so that nothing is lost with us.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import sys
import time

NOT_KERNEL = ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "SReclaimable")


def kernel_kib():
    with open("/proc/meminfo") as f:
        info = {line.split(":")[0]: int(line.split()[1]) for line in f}
    with open("/proc/zoneinfo") as f:
        in_lists = sum(int(n) for n in re.findall(r"count:\s+(\d+)", f.read()))
    return info["MemTotal"] - sum(info[k] for k in NOT_KERNEL) - 4 * in_lists


base, peak = kernel_kib(), -1
while True:
    grown = max(kernel_kib() - base, 0)
    if grown > peak:
        peak = grown
        with open(sys.argv[1] + ".new", "w") as out:
            print(peak // 1024, file=out)
        os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.005)
