"""Reads what is none of its business: passwords, and the files of the caller."""
import os
import sys

reached = 0
for path in ["/etc/shadow", *sys.argv[1:]]:
    try:
        if os.path.isdir(path):
            print(f"  {path}: {len(os.listdir(path))} entries")
        else:
            with open(path, "rb") as file:
                print(f"  {path}: {len(file.read())} bytes")
        reached += 1
    except OSError as error:
        print(f"  {path}: {error.strerror}")
sys.exit(0 if reached else "  nothing to read here")
