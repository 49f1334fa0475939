"""What the tests share."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

TOP = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = TOP / "python"
PATIENCE = 60


def patiently(condition, what="a state"):
    """Waits until the condition holds, with a bound."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


class Case(unittest.TestCase):
    def setUp(self):
        # A warning is an error, apart from those of the machine.
        warnings.simplefilter("error")
        self.dir = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_DIR"]))
        # Runs of root have another user id.
        self.dir.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        before = os.getcwd()
        os.chdir(self.dir)
        self.addCleanup(os.chdir, before)

    def write(self, name, text):
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o644)
        return path

    def python(self, text, **options):
        """A process with the package; what it prints is a pipe."""
        env = dict(os.environ, PYTHONPATH=str(PACKAGE), PYTHONUNBUFFERED="1")
        return subprocess.Popen(
            [sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True, **options
        )
