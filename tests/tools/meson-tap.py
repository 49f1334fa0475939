#!/usr/bin/env python3
"""meson-tap.py BUILD SUITE...: runs meson's tests of these suites and prints them as one TAP."""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import re
import subprocess
import sys

RESULT = re.compile(r"^(not ok|ok)\b(?: \d+)?(?: - | )?(.*)$")


def lines_of(test):
    """The results of one test program: its own TAP, or its exit status as one."""
    name = test["name"].split(" / ")[-1]
    found = []
    for line in test.get("stdout", "").splitlines():
        match = RESULT.match(line)
        if match:
            found.append((match[1] == "ok", f"{name}: {match[2]}"))
    is_good = test["result"] in ("OK", "SKIP", "EXPECTEDFAIL")
    if not found or (not is_good and all(ok for ok, _ in found)):
        found.append((is_good, f"{name}: {test['result']}, status {test['returncode']}"))
    return found


def main():
    build, suites = sys.argv[1], sys.argv[2:]
    command = ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs"]
    for suite in suites:
        command += ["--suite", suite]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    log = pathlib.Path(build, "meson-logs", "testlog.json")
    count = failed = 0
    for line in log.read_text().splitlines() if log.exists() else []:
        for is_ok, name in lines_of(json.loads(line)):
            count += 1
            failed += not is_ok
            print(f"{'ok' if is_ok else 'not ok'} {count} {name}")
    print(f"1..{count}")
    if failed or run.returncode != 0 or count == 0:
        print("".join(f"# {line}\n" for line in run.stdout.splitlines()), end="")
        return 1
    return 0


sys.exit(main())
