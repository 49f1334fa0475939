# SPDX-License-Identifier: Apache-2.0
import os
import subprocess

import forge
from base import Case
from forge import errors


class Errors(Case):
    def reason(self, kind, reason, command, **options):
        run = forge.run(command, **options)
        self.assertEqual(run.reason, reason, run.completion_notes)
        with self.assertRaises(kind) as caught:
            run.check()
        self.assertIs(type(caught.exception), kind)
        self.assertIs(caught.exception.run, run)
        self.assertIn(run.completion_notes, str(caught.exception))
        return caught.exception

    def test_memory(self):
        """memory: OutOfMemory, with the sentence of the verdict"""
        error = self.reason(forge.OutOfMemory, "memory", ["python3", "-c", "x = bytearray(99 << 20)"], memory="32M")
        self.assertIn("32.00 MiB", str(error))

    def test_wall_time(self):
        """wall time: TimedOut"""
        self.reason(forge.TimedOut, "wall_time", ["sleep", "60"], timeout=0.3)

    def test_cpu_time(self):
        """CPU time: TimedOut"""
        self.reason(forge.TimedOut, "cpu_time", ["sh", "-c", "while :; do :; done"], cpu_time=0.3)

    def test_disk(self):
        """disk: DiskFull"""
        self.reason(forge.DiskFull, "disk", ["sh", "-c", "exec head -c 50000000 /dev/zero >big"], disk="1M")

    def test_output(self):
        """output: OutputLimit"""
        self.reason(forge.OutputLimit, "output", ["sh", "-c", "head -c 500000 /dev/zero; sleep 30"], output_limit="1K")

    def test_missing_output(self):
        """missing output: MissingOutput"""
        self.reason(forge.MissingOutput, "missing_output", ["true"], outputs="result.csv")

    def test_exit(self):
        """exit, signal: CommandFailed"""
        self.reason(forge.CommandFailed, "exit", ["sh", "-c", "exit 7"])
        self.reason(forge.CommandFailed, "signal", ["sh", "-c", "kill -SEGV $$"])

    def test_exec(self):
        """a command that is not there: NotExecuted, a CommandFailed"""
        error = self.reason(forge.NotExecuted, "exec", ["no-such-command"])
        self.assertIsInstance(error, forge.CommandFailed)
        self.assertEqual(error.run.returncode, 127)

    def test_pids(self):
        """processes: ProcessLimit, a CommandFailed"""
        self.reason(forge.ProcessLimit, "pids", ["python3", "-c", "import os\nfor i in range(20):\n if os.fork() == 0: __import__('time').sleep(5)"], pids=4)

    def test_rejected(self):
        """more than the host has: Rejected"""
        self.reason(forge.Rejected, "admission", ["true"], memory="900T")

    def test_cancelled(self):
        """killed by somebody: Cancelled"""
        run = forge.submit(["sleep", "60"])
        run.kill()
        with self.assertRaises(forge.Cancelled):
            run.wait(check=True)

    def test_lost(self):
        """the supervisor is killed: Lost"""
        run = forge.submit(["sleep", "60"])
        os.kill(run.record["supervisor"]["pid"], 9)
        with self.assertRaises(forge.Lost):
            run.wait(check=True)

    def test_check_argument(self):
        """check=True raises the same"""
        with self.assertRaises(forge.CommandFailed):
            forge.run(["false"], check=True)
        self.assertTrue(forge.run(["true"], check=True).succeeded)

    def test_every_reason(self):
        """every reason of forge-run(1) has a class"""
        kinds = {
            ("rejected", "admission"): forge.Rejected, ("rejected", "health_pre"): forge.Rejected,
            ("corrupted", "health_post"): forge.Corrupted, ("lost", "host_lost"): forge.Lost,
            ("cancelled", "cancelled"): forge.Cancelled, ("failed", "sandbox"): forge.NotStarted,
            ("failed", "runtime"): forge.NotStarted, ("failed", "input"): forge.NotStarted,
            ("failed", "something new"): forge.RunError,
        }
        for (status, reason), kind in kinds.items():
            self.assertIs(errors.error_class(status, reason), kind)
        manual = subprocess.run([forge.binary(), "ps", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("corrupted", manual)
        words = "exit signal wall_time cpu_time memory pids disk output cancelled exec sandbox runtime input " \
                "missing_output health_pre health_post host_lost admission"
        self.assertEqual(set(words.split()), set(errors._BY_REASON))

    def test_usage(self):
        """a bad request: UsageError with forge's own sentence and hint, and no run"""
        before = len(forge.runs(limit=None))
        for options, sentence in (
            ({"memory": "4 cows"}, "--memory: '4 cows' is not a size"),
            ({"profile": "nope"}, "--profile: unknown profile 'nope'"),
            ({"inputs": "nowhere.csv"}, "nowhere.csv"),
            ({"id": "../x"}, "--id"),
            ({"env": {"a b": "c"}}, "--env"),
            ({"cwd": "/nonexistent"}, "cwd: /nonexistent is no directory"),
            ({"runtime": "nope"}, "nope"),
            ({"executor": "nope"}, "nope"),
        ):
            with self.subTest(options=options):
                with self.assertRaises(forge.UsageError) as caught:
                    forge.run(["true"], **options)
                self.assertIn(sentence, caught.exception.message)
                self.assertIn(caught.exception.status, (2, 125))
                with self.assertRaises(forge.UsageError):
                    forge.submit(["true"], **options)
        self.assertEqual(len(forge.runs(limit=None)), before)
        with self.assertRaises(forge.UsageError) as caught:
            forge.run("python3 fit.py")
        self.assertIn("['python3', 'fit.py']", caught.exception.hint)
        for wrong in ([], ):
            with self.assertRaises(forge.UsageError):
                forge.run(wrong)
        with self.assertRaises(forge.UsageError):
            forge.run(["echo", "a\0b"])
        with self.assertRaises(TypeError):
            forge.run(["true"], memory=True)
        with self.assertRaises(TypeError):
            forge.submit(["true"], nonsense=1)
        with self.assertRaises(TypeError):
            forge.run([3])

    def test_option_words(self):
        """words that look like options belong to the command, and names to their options"""
        self.assertEqual(forge.run(["echo", "--memory", "1", "-r"]).stdout, "--memory 1 -r\n")
        run = forge.run(["sh", "-c", "echo 1 >-x"], outputs="-x")
        self.assertEqual([o.read_bytes() for o in run.outputs], [b"1\n"], run.completion_notes)

    def test_no_such_run(self):
        """no such run: an error with forge's sentence"""
        with self.assertRaisesRegex(forge.ForgeError, "nope"):
            forge.get("nope")

    def test_not_installed(self):
        """no forge in PATH: says how to install it"""
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        del os.environ["FORGE_BINARY"]
        os.environ["PATH"] = str(self.dir)
        for call in (lambda: forge.run(["true"]), lambda: forge.submit(["true"]), forge.health):
            with self.assertRaisesRegex(forge.NotInstalled, "not in PATH.*make && sudo make install.*FORGE_BINARY"):
                call()
        os.environ["FORGE_BINARY"] = "/nonexistent/forge"
        with self.assertRaisesRegex(forge.NotInstalled, "FORGE_BINARY=/nonexistent/forge is no program"):
            forge.run(["true"])
        # One that is in PATH is found.
        os.symlink(before["FORGE_BINARY"], self.dir / "forge")
        del os.environ["FORGE_BINARY"]
        self.assertEqual(forge.binary(), str(self.dir / "forge"))
        self.assertTrue(forge.run(["true"]).succeeded)
        # A file that cannot be executed.
        self.write("broken", "#!/nonexistent\n").chmod(0o755)
        os.environ["FORGE_BINARY"] = str(self.dir / "broken")
        with self.assertRaises(forge.NotInstalled):
            forge.run(["true"])

    def test_exported(self):
        """every exception of errors.py is one of the package"""
        for name, kind in vars(errors).items():
            if isinstance(kind, type) and issubclass(kind, (Exception, Warning)) and kind.__module__ == errors.__name__:
                self.assertIs(getattr(forge, name, None), kind)
                self.assertIn(name, forge.__all__)

    def test_no_json(self):
        """a forge that prints no record is an error, never a success"""
        before = os.environ["FORGE_BINARY"]
        self.addCleanup(os.environ.update, FORGE_BINARY=before)
        fake = self.write("fake", "#!/bin/sh\necho not json; exit 0\n")
        fake.chmod(0o755)
        os.environ["FORGE_BINARY"] = str(fake)
        with self.assertRaisesRegex(forge.ForgeError, "no JSON"):
            forge.run(["true"])
        fake.write_text("#!/bin/sh\nkill -9 $$\n")
        with self.assertRaisesRegex(forge.ForgeError, "killed by signal 9"):
            forge.run(["true"])
