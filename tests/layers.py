#!/usr/bin/env python3
"""Checks the #include lines of src/ against the layers of docs/ARCHITECTURE.md, as TAP.

Nothing includes upward or sideways; src/probe stands alone. With a directory as argument,
that tree is checked instead of ours.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys
import tempfile

ORDER = [
    ["base"],
    ["config"],
    ["state"],
    ["sandbox", "runtime", "store", "health"],
    ["spec"],
    ["executor"],
    ["record"],
    ["run"],
    ["doctor", "pipeline"],
    ["server", "cli"],
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
ALONE = {"probe"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def verdict(layer, target):
    """Why layer may not include target (a path as written), or None."""
    if ".." in target.split("/"):
        return "leaves its directory by '..'"
    other = target.split("/")[0] if "/" in target else layer
    if other == layer:
        return None
    if layer in ALONE or other in ALONE:
        return "src/probe stands alone"
    if other not in RANK:
        return f"'{other}' is no layer"
    if RANK[other] == RANK[layer]:
        return f"goes sideways, {layer} and {other} are one level"
    if RANK[other] > RANK[layer]:
        return f"goes upward, {layer} is below {other}"
    return None


def offences(src):
    """One line for each bad include below src, by layer."""
    found = {}
    for path in sorted(src.rglob("*.[ch]")):
        layer = path.relative_to(src).parts[0]
        for target in INCLUDE.findall(path.read_text()):
            why = verdict(layer, target)
            if why:
                found.setdefault(layer, []).append(
                    f'{path.relative_to(src)}: "{target}" {why}')
    return found


class Tap:
    """Prints results as they come."""

    def __init__(self):
        self.count = self.failed = 0

    def result(self, is_ok, name, notes=()):
        self.count += 1
        self.failed += not is_ok
        print(f"{'ok' if is_ok else 'not ok'} {self.count} {name}")
        for note in notes:
            print(f"# {note}")

    def finish(self):
        print(f"1..{self.count}")
        return 1 if self.failed else 0


def check_tree(tap, src):
    found = offences(src)
    layers = sorted(p.name for p in src.iterdir() if p.is_dir())
    for layer in layers:
        known = layer in RANK or layer in ALONE
        notes = found.get(layer, []) + ([] if known else [f"src/{layer} is no layer"])
        tap.result(not notes, f"src/{layer} includes only what is below it", notes)


def check_ourselves(tap):
    """The check can fail: made-up trees with one include each."""
    cases = [
        ("base/a.c", "config/config.h", True, "upward"),
        ("sandbox/a.c", "store/store.h", True, "sideways"),
        ("cli/a.c", "server/http.h", True, "sideways at the top"),
        ("base/a.c", "../config/config.h", True, "by dots"),
        ("run/a.c", "probe/probe.h", True, "of the probe"),
        ("probe/a.c", "base/fd.h", True, "from the probe"),
        ("run/a.c", "nowhere/x.h", True, "of an unknown layer"),
        ("cli/a.c", "base/fd.h", False, "downward"),
        ("run/a.c", "run/spec.h", False, "of its own directory"),
        ("base/a.c", "config-build.h", False, "of a generated header"),
    ]
    for name, target, is_bad, what in cases:
        with tempfile.TemporaryDirectory() as tree:
            path = pathlib.Path(tree, name)
            path.parent.mkdir()
            path.write_text(f'#include <stdio.h>\n#include "{target}"\n')
            found = offences(pathlib.Path(tree))
        word = "refused" if is_bad else "accepted"
        tap.result(bool(found) == is_bad, f"self-test: an include {what} is {word}")


def main():
    tap = Tap()
    if len(sys.argv) > 1:
        check_tree(tap, pathlib.Path(sys.argv[1]))
    else:
        check_ourselves(tap)
        check_tree(tap, pathlib.Path(__file__).parent.parent / "src")
    return tap.finish()


sys.exit(main())
