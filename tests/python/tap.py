#!/usr/bin/env python3
"""tap.py [MODULE...]: runs the tests of the Python package, or of some modules, and prints TAP.

$FORGE is the program under test. Each module has a FORGE_HOME of its own.
"""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]


class Tap(unittest.TestResult):
    """One line for each test; what went wrong as comments."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def line(self, is_ok, test, rest="", text=""):
        self.count += 1
        name = (test.shortDescription() or str(test)).replace("#", "")
        print(f"{'ok' if is_ok else 'not ok'} {self.count} {name}{rest}", flush=True)
        for line in text.splitlines():
            print(f"# {line}", flush=True)

    def addSuccess(self, test):
        self.line(True, test)

    def addError(self, test, err):
        super().addError(test, err)
        self.line(False, test, "", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line(False, test, "", self.failures[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(True, test, f" # skip {reason}")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            super().addSubTest(test, subtest, err)
            self.line(False, subtest, "", self._exc_info_to_string(err, test))


def main():
    forge = os.path.realpath(os.environ["FORGE"])
    home = tempfile.mkdtemp(prefix="forge-python.")
    os.chmod(home, 0o755)
    os.environ.update(
        FORGE_BINARY=forge, FORGE_HOME=f"{home}/state", HOME=home, XDG_CONFIG_HOME=f"{home}/.config", TEST_DIR=home,
    )
    for name in ("FORGE_CONFIG", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"):
        os.environ.pop(name, None)
    os.chdir(home)
    names = sys.argv[1:] or sorted(p.stem for p in HERE.glob("test_*.py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = Tap()
    try:
        suite.run(result)
    finally:
        left = subprocess.run([forge, "ps", "-r", "-q"], capture_output=True, text=True, check=False).stdout.split()
        # A test that leaves a run behind has failed, unless its run was submitted: then it ended it.
        result.count += 1
        print(f"{'not ok' if left else 'ok'} {result.count} {' '.join(names)}: no run is left {' '.join(left)}")
        if left:
            subprocess.run([forge, "kill", "--now", *left], stdout=subprocess.DEVNULL, check=False)
        os.chdir("/")
        shutil.rmtree(home, ignore_errors=True)
    print(f"1..{result.count}")
    return 0 if result.wasSuccessful() and not left else 1


if __name__ == "__main__":
    sys.exit(main())
