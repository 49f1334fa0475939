#!/usr/bin/env python3
# hole.py PID SOURCE TARGET: mounts SOURCE of this host, writable, at TARGET where process PID is. For tests of what
# is noticed when a sandbox or a container has a hole.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import sys

OPEN_TREE, MOVE_MOUNT = 428, 429  # the same on all architectures
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, AT_FDCWD = 1, 4, -100

libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result < 0:
        sys.exit(f"hole.py: {what}: {os.strerror(ctypes.get_errno())}")
    return result


pid, source, target = sys.argv[1:]
tree = check(libc.syscall(OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE), source)
namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
check(libc.setns(namespace, 0), "setns")
check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH), target)
