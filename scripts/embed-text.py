#!/usr/bin/env python3
"""embed-text.py FILE NAME: prints FILE as `static const char NAME[]` for C. JSON loses its indentation."""
# SPDX-License-Identifier: Apache-2.0
import json
import sys

path, name = sys.argv[1:]
text = open(path, "rb").read()
if path.endswith(".json"):
    text = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False).encode()
print(f"/* Made from {path.rsplit('/', 1)[-1]}. */\nstatic const char {name}[] =")
for at in range(0, len(text), 64):
    part = text[at:at + 64]
    # Octal escapes have an end; a digit behind a hexadecimal one would be taken for a part of it.
    print('\t"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in part) + '"')
print("\t;")
