"""Sends its results somewhere else: to an address, and to a database on this machine."""
import os
import socket
import sys

reached = 0
for where in [("192.0.2.1", 443), ("127.0.0.1", 5432), ("127.0.0.1", 22)]:
    try:
        socket.create_connection(where, timeout=2)
        print(f"  {where[0]}:{where[1]}: connected")
        reached += 1
    except OSError as error:
        print(f"  {where[0]}:{where[1]}: {error.strerror or error}")
sockets = os.listdir("/run") if os.path.exists("/run") else []
print(f"  interfaces: {' '.join(name for _, name in socket.if_nameindex())}; "
      f"{len(sockets)} entries in /run")
sys.exit(0 if reached or sockets else "  nobody to talk to here")
