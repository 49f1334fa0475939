#!/usr/bin/env python3
"""listener.py ABSTRACT PATH HEARD PORT: services of the host for a sandbox not to reach.

Listens on 127.0.0.1 and ::1 (TCP and UDP, one port), an abstract and a named Unix socket.
Writes the port to PORT when ready, and a line to HEARD for whatever arrives.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import selectors
import socket
import sys

abstract, path, heard, port_file = sys.argv[1:]
sel = selectors.DefaultSelector()


def add(family, kind, address):
    try:
        s = socket.socket(family, kind)
        s.bind(address)
    except OSError:
        if family == socket.AF_INET6:
            return None  # this host has no IPv6
        raise
    if kind == socket.SOCK_STREAM:
        s.listen(8)
    sel.register(s, selectors.EVENT_READ)
    return s


tcp = add(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
port = tcp.getsockname()[1]
add(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port))
add(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port))
add(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract)
add(socket.AF_UNIX, socket.SOCK_STREAM, path)
os.chmod(path, 0o777)
with open(port_file + ".new", "w") as f:
    f.write(str(port))
os.rename(port_file + ".new", port_file)
while True:
    for key, _ in sel.select():
        s = key.fileobj
        if s.type == socket.SOCK_STREAM:
            s.accept()[0].close()
        else:
            s.recv(64)
        with open(heard, "a") as f:
            f.write(f"{s.getsockname()}\n")
