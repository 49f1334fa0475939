#!/usr/bin/env python3
"""docs.py [DIR]: checks the documents, or those installed in DIR: nothing is said twice, links lead somewhere. TAP."""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if sys.argv[1:] else pathlib.Path(__file__).parents[2]).resolve()
BLOCK = 4  # so many lines in a row that are the same are a copy
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def documents():
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("python/*.md"), *ROOT.glob("man/*.scd")])


def blocks(path):
    """(lines, where) of every run of BLOCK lines of text; tables' rules and fences are none."""
    kept = [(n, line.strip()) for n, line in enumerate(path.read_text().splitlines(), 1)]
    kept = [(n, line) for n, line in kept if len(line) > 12 and not line.startswith("|-")]
    for i in range(len(kept) - BLOCK + 1):
        part = kept[i:i + BLOCK]
        yield tuple(line for _, line in part), f"{path.relative_to(ROOT)}:{part[0][0]}"


def copies():
    seen = {}
    for path in documents():
        for text, where in blocks(path):
            if text in seen:
                yield f"{where} repeats {seen[text]}: {text[0]}"
            seen.setdefault(text, where)


def dead_links():
    for path in documents():
        if path.suffix != ".md":
            continue
        for target in LINK.findall(path.read_text()):
            if "://" in target or target.startswith("mailto:"):
                continue
            if not (path.parent / target).exists():
                yield f"{path.relative_to(ROOT)}: {target}"


def main():
    failed = 0
    checks = [("no document repeats another", copies), ("links lead to files", dead_links)]
    for n, (name, check) in enumerate(checks, 1):
        found = list(check())
        failed += bool(found)
        print(f"{'not ok' if found else 'ok'} {n} {name}")
        for line in found:
            print(f"# {line}")
    print(f"1..{len(checks)}")
    return 1 if failed else 0


sys.exit(main())
