#!/usr/bin/env python3
"""Checks the #include lines of src/ against the layers of docs/ARCHITECTURE.md, as TAP.

Nothing includes upward or sideways; src/probe stands alone. A room, which is a directory inside
a layer (executor/local), includes no other room. What stands above the executors does not
include src/sandbox, except doctor, which attacks it. Modules of one directory do not depend on
each other in a circle. With a directory as argument, that tree is checked instead of ours.
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
    ["server"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
ALONE = {"probe"}
# These layers stand above the executors and reach the sandbox through one.
NO_SANDBOX = {"record", "run", "pipeline", "server", "cli"}
# Headers that the build makes; no directory of src/ has them.
GENERATED = {"config-build.h", "filter.h", "openapi.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def includes(path):
    """(quote, target) of each #include line; the target is a path as it is written."""
    return INCLUDE.findall(path.read_text())


def room(name):
    """executor/local of executor/local/pump.c; None outside of a room."""
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else None


def verdict_between(layer, other):
    """Why a file of layer may not include a file of another layer, or None."""
    if layer in ALONE or other in ALONE:
        return "src/probe stands alone"
    for name in (layer, other):
        if name not in RANK:
            return f"'{name}' is no layer"
    if other == "sandbox" and layer in NO_SANDBOX:
        return f"{layer} reaches the sandbox through an executor"
    if RANK[other] == RANK[layer]:
        return f"goes sideways, {layer} and {other} are one level"
    if RANK[other] > RANK[layer]:
        return f"goes upward, {layer} is below {other}"
    return None


def verdict(src, name, quote, target):
    """Why the file of this name may not include target, or None."""
    layer = name.split("/")[0]
    if ".." in target.split("/"):
        return "leaves its directory by '..'"
    if quote == "<":
        return "is ours, but in <>" if (src / target).exists() else None
    if "/" not in target:
        is_fine = target in GENERATED or layer in ALONE
        return None if is_fine else "is written without its directory"
    other = target.split("/")[0]
    if other != layer:
        return verdict_between(layer, other)
    if room(name) and room(target) and room(name) != room(target):
        return "is in another room"
    return None


def offences(src):
    """One line for each bad include below src, by layer."""
    found = {}
    for path in sorted(src.rglob("*.[ch]")):
        name = str(path.relative_to(src))
        for quote, target in includes(path):
            why = verdict(src, name, quote, target)
            if why:
                found.setdefault(name.split("/")[0], []).append(f'{name}: "{target}" {why}')
    return found


def directory(module):
    return module.rpartition("/")[0]


def dependencies(src):
    """module -> the modules of its directory that it includes.

    A module is NAME.c with NAME.h. A header without a .c is no module: what it includes counts
    as included by the files that include it.
    """
    names = {str(path.relative_to(src)) for path in src.rglob("*.[ch]")}
    included = {}
    for name in names:
        targets = {target[:-2] for _, target in includes(src / name) if target in names}
        included.setdefault(name[:-2], set()).update(targets)
    modules = {module for module in included if module + ".c" in names}

    def reach(at, seen):
        for target in included[at] - seen:
            seen.add(target)
            if target in modules:
                yield target
            else:
                yield from reach(target, seen)

    return {module: {target for target in reach(module, {module})
                     if directory(target) == directory(module)}
            for module in modules}


def path_back(graph, start, at, seen):
    """The modules on a path from at to start, both without the last step; None: there is none."""
    for target in sorted(graph[at]):
        if target == start:
            return [at]
        if target not in seen:
            seen.add(target)
            rest = path_back(graph, start, target, seen)
            if rest:
                return [at] + rest
    return None


def circles(src):
    """One line for each circle of modules, from the first of its names on."""
    graph = dependencies(src)
    found = set()
    for module in sorted(graph):
        circle = path_back(graph, module, module, {module})
        if circle:
            first = circle.index(min(circle))
            turned = circle[first:] + circle[:first]
            found.add(" -> ".join(turned + turned[:1]))
    return sorted(found)


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
    found = circles(src)
    tap.result(not found, "no modules depend on each other in a circle", found)


def make_tree(tree, files, quotes='""'):
    """Writes files, a map of names to the includes of each, below tree."""
    for name, targets in files.items():
        path = pathlib.Path(tree, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"#include {quotes[0]}{target}{quotes[1]}\n" for target in targets]
        path.write_text("#include <stdio.h>\n" + "".join(lines))
    return pathlib.Path(tree)


# A file, what it includes, and a part of why that is refused; None: it is accepted.
INCLUDE_CASES = [
    ("base/a.c", "config/config.h", "goes upward", "upward"),
    ("sandbox/a.c", "store/store.h", "goes sideways", "sideways"),
    ("server/a.c", "cli/cli.h", "goes upward", "upward at the top"),
    ("pipeline/a.c", "doctor/setup.h", "goes sideways", "sideways near the top"),
    ("base/a.c", "../config/config.h", "by '..'", "by dots"),
    ("run/a.c", "probe/probe.h", "stands alone", "of the probe"),
    ("probe/a.c", "base/fd.h", "stands alone", "from the probe"),
    ("run/a.c", "nowhere/x.h", "'nowhere' is no layer", "of an unknown layer"),
    ("nowhere/a.c", "base/fd.h", "'nowhere' is no layer", "from an unknown layer"),
    ("base/a.c", "fd.h", "without its directory", "without its directory"),
    ("run/a.c", "sandbox/plan.h", "through an executor", "of the sandbox above the executors"),
    ("executor/local/a.c", "executor/slurm/b.h", "in another room", "of another room"),
    ("cli/a.c", "base/fd.h", None, "downward"),
    ("run/a.c", "run/spec.h", None, "of its own directory"),
    ("base/a.c", "config-build.h", None, "of a generated header"),
    ("probe/a.c", "probe.h", None, "of the probe by the probe"),
    ("doctor/a.c", "sandbox/plan.h", None, "of the sandbox by doctor"),
    ("executor/a.c", "sandbox/plan.h", None, "of the sandbox by an executor"),
    ("executor/local/a.c", "executor/local/b.h", None, "of its own room"),
    ("executor/local/a.c", "executor/executor.h", None, "of the contract of the rooms"),
]

# The files of a tree with their includes, and the circles in it.
CIRCLE_CASES = [
    ("two modules",
     {"run/a.h": [], "run/a.c": ["run/b.h"], "run/b.h": [], "run/b.c": ["run/a.h"]},
     ["run/a -> run/b -> run/a"]),
    ("three modules, one by its header",
     {"run/a.h": [], "run/a.c": ["run/b.h"], "run/b.h": ["run/c.h"], "run/b.c": [],
      "run/c.h": [], "run/c.c": ["run/a.h"]},
     ["run/a -> run/b -> run/c -> run/a"]),
    ("two modules, through a header without a .c",
     {"run/a.h": [], "run/a.c": ["run/b.h"], "run/b.h": [], "run/b.c": ["run/all.h"],
      "run/all.h": ["run/a.h"]},
     ["run/a -> run/b -> run/a"]),
    ("a module and a contract",
     {"run/a.h": [], "run/a.c": ["run/a.h", "run/b.h"], "run/b.h": ["run/a.h"]}, []),
    ("a chain of modules",
     {"run/a.h": [], "run/a.c": ["run/b.h"], "run/b.h": [], "run/b.c": ["run/c.h"],
      "run/c.h": [], "run/c.c": []}, []),
]


def check_includes(tap):
    """Trees with one include each: the rule that is broken is the one that is named."""
    for name, target, why, what in INCLUDE_CASES:
        with tempfile.TemporaryDirectory() as tree:
            found = offences(make_tree(tree, {name: [target]}))
        lines = sum(found.values(), [])
        is_right = why in lines[0] if why and len(lines) == 1 else not why and not lines
        tap.result(is_right, f"self-test: an include {what} is {'refused' if why else 'accepted'}",
                   [] if is_right else lines)
    for target, is_bad in ("base/fd.h", True), ("sys/stat.h", False):
        with tempfile.TemporaryDirectory() as tree:
            make_tree(tree, {"base/fd.h": []})
            found = offences(make_tree(tree, {"cli/a.c": [target]}, "<>"))
        tap.result(bool(found) == is_bad,
                   f"self-test: <{target}> is {'refused' if is_bad else 'accepted'}")


def check_circles(tap):
    for what, files, want in CIRCLE_CASES:
        with tempfile.TemporaryDirectory() as tree:
            found = circles(make_tree(tree, files))
        tap.result(found == want,
                   f"self-test: {'a circle' if want else 'no circle'} of {what}",
                   [] if found == want else found)


def main():
    tap = Tap()
    if len(sys.argv) > 1:
        check_tree(tap, pathlib.Path(sys.argv[1]))
    else:
        check_includes(tap)
        check_circles(tap)
        check_tree(tap, pathlib.Path(__file__).parent.parent / "src")
    return tap.finish()


sys.exit(main())
