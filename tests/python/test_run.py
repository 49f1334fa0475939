# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import datetime
import os
import pickle
import pty
import select
import signal
import subprocess
import sys
import unittest

import forge
from base import Case, patiently
from forge import _request

READY = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done"


class Runs(Case):
    def test_finished(self):
        """run: a finished run has its verdict, usage, limits and log"""
        run = forge.run(["sh", "-c", "echo out; echo err >&2; exit 3"], memory="64M", timeout=20, cpus=0.5)
        self.assertEqual((run.status, run.reason, run.exit_code, run.returncode), ("failed", "exit", 3, 3))
        self.assertIn("exit code 3", run.completion_notes)
        self.assertEqual((run.stdout, run.stderr), ("out\n", "err\n"))
        self.assertEqual(run.logs(), forge.Logs(b"out\n", b"err\n"))
        self.assertEqual(run.limits["memory_bytes"], 64 << 20)
        self.assertEqual(run.limits["wall_seconds"], 20)
        self.assertEqual(run.limits["cpus"], 0.5)
        self.assertEqual(run.usage["stdout_bytes"], 4)
        self.assertEqual(run.record["run_id"], run.run_id)
        self.assertFalse(run.succeeded)
        self.assertEqual(forge.get(run.run_id).completion_notes, run.completion_notes)

    def test_one_process(self):
        """run: one process of forge for a run, one more for each log that is read"""
        calls = self.write("calls", "")
        script = self.write("forge", f'#!/bin/sh\necho "$1" >>{calls}\nexec {forge.binary()} "$@"\n')
        script.chmod(0o755)
        before = os.environ["FORGE_BINARY"]
        os.environ["FORGE_BINARY"] = str(script)
        self.addCleanup(os.environ.update, FORGE_BINARY=before)
        run = forge.run(["echo", "x"])
        self.assertTrue(run.check() and run.usage and run.stderr == "")
        self.assertEqual(calls.read_text().split(), ["run"])
        self.assertEqual((run.stdout, run.stdout), ("x\n", "x\n"))
        self.assertEqual(calls.read_text().split(), ["run", "logs"])

    def test_options(self):
        """run: every argument becomes the option of forge run with its value"""
        words = _request.request_words(
            runtime="r", profile="p", inputs=["a", b"b\xff"], outputs="*.csv", copy="out", force=True,
            params={"a": 1, "b": "x", "c": [1]}, memory=1 << 30, cpus=1.5, pids=7, timeout=0.25,
            cpu_time=datetime.timedelta(minutes=2), disk="1G", inodes=9, output_limit="1M", open_files=8,
            sockets=4, io_rate="2M", grace=1, network=True, env={"A": "1", "B": None}, env_file="e",
            executor="local", id="i", priority=-3, key="k", retry={"memory": "2,factor=3"}, post_process="pp", keep=True,
        )
        self.assertEqual(words, [
            "--runtime", "r", "--profile", "p", "--input", "a", "--input", b"b\xff", "--output", "*.csv",
            "--copy", f"{os.getcwd()}/out", "--param", "a=1", "--param", "b=x", "--param", "c=[1]",
            "--memory", str(1 << 30), "--cpus", "1.5", "--pids", "7", "--disk", "1G", "--inodes", "9",
            "--output-limit", "1M", "--open-files", "8", "--sockets", "4", "--io-rate", "2M",
            "--timeout", "0.25", "--cpu-time", "120", "--grace", "1", "--network", "host",
            "--env", "A=1", "--env", "B", "--env-file", "e", "--executor", "local", "--id", "i", "--priority", "-3",
            "--idempotency-key", "k", "--retry", "memory=2,factor=3", "--post-process", "pp", "--force", "--keep",
        ])
        # forge has them all.
        shown = subprocess.run([forge.binary(), "run", "--help"], capture_output=True, text=True, check=True).stdout
        for word in words:
            if isinstance(word, str) and word.startswith("--"):
                self.assertIn(word, shown)
        self.assertEqual(_request.request_words(outputs=[]), ["--output", "none"])

    def test_run_and_request_agree(self):
        """run: its signature has what request_words() knows, so has the command line"""
        import inspect

        known = set(inspect.signature(_request.request_words).parameters)
        own = {"cmd", "cwd", "stdin", "check", "progress", "store", "config"}
        self.assertEqual(set(inspect.signature(forge.run).parameters), known | own)
        own -= {"stdin", "check", "progress"}
        self.assertEqual(set(inspect.signature(forge.submit).parameters), known | own)

    def test_inputs_env_cwd(self):
        """run: inputs relative to cwd, variables, and outputs"""
        (self.dir / "p").mkdir()
        (self.dir / "p").chmod(0o755)
        self.write("p/in.txt", "data")
        os.environ["PASSED"] = "on"
        self.addCleanup(os.environ.pop, "PASSED")
        run = forge.run(
            ["sh", "-c", 'cat in.txt; echo $SET $PASSED; mkdir d; printf 12 >d/o.txt; printf 3 >e'],
            inputs="in.txt", cwd=self.dir / "p", env={"SET": "a b", "PASSED": None}, check=True,
        )
        self.assertEqual(run.stdout, "dataa b on\n")
        self.assertEqual([(o.path, o.size) for o in run.outputs], [("d/o.txt", 2), ("e", 1)])
        output = run.output("d/o.txt")
        self.assertEqual((output.read_bytes(), output.read_text()), (b"12", "12"))
        self.assertRegex(output.sha256, "^sha256:[0-9a-f]{64}$")
        there = output.copy_to(self.dir / "copies")
        self.assertEqual(there, self.dir / "copies/d/o.txt")
        self.assertEqual(there.read_text(), "12")
        self.assertEqual(os.listdir(there.parent), ["o.txt"])
        with self.assertRaises(FileExistsError):
            output.copy_to(self.dir / "copies")
        there.write_text("old")
        self.assertEqual(output.copy_to(self.dir / "copies", force=True).read_text(), "12")
        run.copy_outputs(self.dir / "all")
        self.assertEqual((self.dir / "all/e").read_text(), "3")
        with self.assertRaises(KeyError):
            run.output("nope")
        self.assertEqual(run.rerun(check=True).stdout, "dataa b on\n")
        # A path that is given now is relative to the current directory.
        self.write("more.txt", "more")
        self.assertEqual(len(run.rerun(inputs="more.txt", check=True).record["inputs"]), 2)

    def test_damaged(self):
        """outputs: a damaged one is an error, and nothing of it is handed out"""
        run = forge.run(["sh", "-c", "head -c 3000000 /dev/zero >big"], check=True)
        digest = run.outputs[0].sha256[len("sha256:"):]
        stored = f"{os.environ['FORGE_HOME']}/objects/{digest[:2]}/{digest[2:]}"
        os.chmod(stored, 0o600)
        with open(stored, "r+b") as file:
            file.seek(2999999)
            file.write(b"x")
        with self.assertRaisesRegex(forge.ForgeError, "damaged"):
            run.outputs[0].read_bytes()
        with self.assertRaisesRegex(forge.ForgeError, "damaged"):
            run.outputs[0].copy_to(self.dir / "to")
        self.assertEqual(os.listdir(self.dir / "to"), [])

    def test_copy(self):
        """run: copy puts the outputs into a directory"""
        forge.run(["sh", "-c", "echo 1 >x"], copy="results", check=True)
        self.assertEqual((self.dir / "results/x").read_text(), "1\n")

    def test_stdin(self):
        """run: standard input is bytes, text or a file"""
        self.assertEqual(forge.run(["cat"], stdin=b"a\xffb").stdout_bytes, b"a\xffb")
        self.assertEqual(forge.run(["cat"], stdin="text").stdout, "text")
        big = b"x" * 3_000_000
        self.assertEqual(forge.run(["wc", "-c"], stdin=big).stdout.strip(), "3000000")
        # One that does not read it all is no error.
        self.assertTrue(forge.run(["true"], stdin=big).succeeded)
        self.write("f", "from a file")
        with open("f", "rb") as file:
            self.assertEqual(forge.run(["cat"], stdin=file).stdout, "from a file")
        self.assertEqual(forge.run(["cat"]).stdout, "")

    def test_python(self):
        """run_python: a text as a program, with arguments"""
        run = forge.run_python("import sys\nprint(sys.argv[1:])\n" + "#" * 200_000, "a", "b c", check=True)
        self.assertEqual(run.stdout, "['a', 'b c']\n")

    def test_bytes(self):
        """bytes that are not UTF-8: in words, names, logs"""
        run = forge.run([
            "sh", "-c", r"""printf 'a\377b\n'; printf '\303' >&2; printf '%s' "$1"; echo 1 >"$(printf 'n\351')"
                echo 2 >'a\xe9b'; echo 3 >'c\d'; echo 4 >'e\\f'""", "sh", b"w\xfe",
        ], check=True)
        self.assertEqual(run.stdout_bytes, b"a\xffb\nw\xfe")
        self.assertEqual(run.stdout, "a\udcffb\nw\udcfe")
        self.assertEqual(run.stderr_bytes, b"\xc3")
        names = {o.name: o.read_bytes() for o in run.outputs}
        self.assertEqual(names, {b"n\xe9": b"1\n", rb"a\xe9b": b"2\n", rb"c\d": b"3\n", rb"e\\f": b"4\n"})
        self.assertEqual([o.read_bytes() for o in run.outputs if o.path == "n\udce9"], [b"1\n"])
        self.assertEqual(run.output(b"n\xe9").copy_to("to").read_bytes(), b"1\n")
        self.assertEqual(os.listdir(b"to"), [b"n\xe9"])
        lines = list(run.follow("stdout"))
        self.assertEqual([(line.data, line.ends_line) for line in lines], [(b"a\xffb", True), (b"w\xfe", False)])

    def test_long_line(self):
        """follow: a log of one very long line comes in parts, and is whole"""
        run = forge.run(["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"], check=True)
        parts = list(run.follow())
        self.assertGreater(len(parts), 10)
        self.assertEqual(b"".join(part.data for part in parts), b"x" * 3_000_000)

    def test_submit(self):
        """submit: the run goes on; wait, follow, kill, rerun"""
        (self.dir / "gate").mkdir()
        (self.dir / "gate").chmod(0o755)
        shut = self.write("gate/shut", "")
        command = ["sh", "-c", "echo begun; echo e >&2; while [ -e gate/shut ]; do sleep 0.02; done; echo ended"]
        run = forge.submit(command, inputs="gate", id="sub", key="a-key")
        with self.assertRaises(forge.NotOver) as caught:
            run.wait(timeout=0.2)
        self.assertIn(caught.exception.run.status, ("queued", "preparing", "running"))
        with self.assertRaises(forge.NotOver):
            run.check()
        self.assertIsNone(run.returncode)
        again = forge.submit(command, inputs="gate", id="sub", key="a-key")
        self.assertEqual(again.run_id, run.run_id)
        lines = []
        for line in run.follow():
            lines.append((line.stream, str(line)))
            if len(lines) == 2:
                # It is live: this is before the run ends.
                self.assertFalse(run.is_over)
                shut.unlink()
        self.assertEqual(sorted(lines[:2]), [("stderr", "e"), ("stdout", "begun")])
        self.assertEqual(lines[2:], [("stdout", "ended")])
        self.assertTrue(run.wait(check=True).succeeded)
        self.assertEqual(forge.get("sub"), run)
        self.assertIn("succeeded", [e.get("status") for e in run.events()])

    def test_follow_left(self):
        """follow: who stops reading leaves no process, and the run goes on"""
        run = forge.submit(["sh", "-c", "echo a; exec sleep 60"])
        self.addCleanup(run.kill, True)
        lines = run.follow()
        self.assertEqual(next(lines), "a")
        lines.close()
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        self.assertFalse(run.is_over)

    def test_kill(self):
        """kill: ends it, asked first; a run that is over stays as it is"""
        run = forge.submit(["sh", "-c", READY], grace=30)
        self.assertEqual(next(run.follow()), "ready")
        self.assertEqual(run.kill().status, "cancelled")
        self.assertEqual(run.stdout, "ready\nasked\n")
        self.assertEqual(run.kill().status, "cancelled")

    def test_resume(self):
        """resume: goes on with more; what succeeded is refused"""
        failed = forge.run(["sh", "-c", 'exec python3 -c "x = bytearray(60 << 20)"'], memory="32M")
        self.assertEqual(failed.reason, "memory")
        after = failed.resume(memory="256M", check=True)
        self.assertEqual(after.limits["memory_bytes"], 256 << 20)
        with self.assertRaisesRegex(forge.UsageError, "has succeeded"):
            after.resume()

    def test_retry(self):
        """run: with retry the last attempt is what counts, also for a submitted run"""
        command = ["python3", "-c", "x = bytearray(60 << 20)"]
        run = forge.run(command, memory="32M", retry={"memory": "2,factor=8"}, check=True)
        self.assertEqual(run.record["attempt"], 2)
        run = forge.submit(command, memory="32M", retry="memory=2,factor=8")
        first = run.run_id
        self.assertEqual(run.wait(check=True).record["attempt"], 2)
        self.assertEqual(forge.get(first).record["attempt"], 2)

    def test_listing(self):
        """runs, runtimes, health, version"""
        name = f"list-{os.getpid()}"
        ids = [forge.run(["true"], id=name).run_id for _ in range(3)]
        forge.run(["false"], id=name)
        self.assertEqual([r.run_id for r in forge.runs(analysis=name, status="succeeded")], ids[::-1])
        found = forge.runs(analysis=name, limit=1)
        self.assertEqual([r.status for r in found], ["failed"])
        self.assertEqual(found[0].command, ["false"])  # a row of the list is completed
        self.assertEqual(len(forge.runs(analysis=name, limit=None)), 4)
        self.assertEqual([r.run_id for r in forge.runs(analysis=name, after=ids[1])], ids[:1])
        self.assertIsInstance(forge.runtimes(), list)
        self.assertEqual({check.name for check in forge.health()} & {"disk", "memory"}, {"disk", "memory"})
        self.assertRegex(forge.version(), "^forge [0-9]")
        forge.get(ids[0]).remove()
        with self.assertRaises(forge.ForgeError):
            forge.get(ids[0])

    def test_config_and_store(self):
        """run: config and store are also those of what is asked later"""
        config = self.write("my.yaml", "profiles: {default: {memory: 77M}}\n")
        run = forge.run(["echo", "x"], config="my.yaml", store=f"sqlite:{self.dir}/own.db")
        self.assertEqual(run.limits["memory_bytes"], 77 << 20)
        self.assertEqual(run.stdout, "x\n")
        self.assertEqual([r.run_id for r in forge.runs(store=f"sqlite:{self.dir}/own.db")], [run.run_id])
        self.assertNotIn(run, forge.runs(limit=None))
        os.chdir("/")
        self.assertEqual(run.refresh().status, "succeeded")
        self.assertIn("succeeded", [e.get("status") for e in run.events()])
        config.unlink()

    def test_pickle(self):
        """a run and its exception can be pickled, for process pools"""
        run = forge.run(["false"])
        self.assertEqual(pickle.loads(pickle.dumps(run)).reason, "exit")
        with self.assertRaises(forge.CommandFailed) as caught:
            run.check()
        copy = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(copy), copy.run), (str(caught.exception), run))

    def test_threads(self):
        """1,000 runs from 50 threads"""
        # Quick commands in shells of their own; each has its own output.
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            runs = list(pool.map(
                lambda n: forge.run(["echo", str(n)], memory="16M", pids=10, outputs="none"), range(1000)))
        self.assertEqual({run.status for run in runs}, {"succeeded"})
        self.assertEqual(len({run.run_id for run in runs}), 1000)
        for n in (0, 1, 499, 999):
            self.assertEqual(runs[n].stdout, f"{n}\n")

    def test_progress(self):
        """progress: one line on a terminal, gone at the end; none where there is no terminal"""
        text = ("import forge; r = forge.run(['sh', '-c', 'sleep 2.5'], id='shown'); print(r.status);"
                "forge.run(['true'])")
        master, slave = pty.openpty()
        process = self.python(text, stderr=slave)
        os.close(slave)
        seen = b""
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                break
            if not data:
                break
            seen += data
        os.close(master)
        self.assertEqual(process.communicate()[0], "succeeded\n")
        self.assertIn(b"\rforge: shown: running 1 s", seen)
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
        self.assertNotIn(b"\n", seen)
        process = self.python(text, stderr=subprocess.PIPE)
        self.assertEqual(process.communicate()[1], "")

    def test_warning(self):
        """what forge warns of is a Python warning"""
        script = self.write("forge", f'#!/bin/sh\necho "forge: warning: so it is" >&2\nexec {forge.binary()} "$@"\n')
        script.chmod(0o755)
        before = os.environ["FORGE_BINARY"]
        os.environ["FORGE_BINARY"] = str(script)
        self.addCleanup(os.environ.update, FORGE_BINARY=before)
        with self.assertWarnsRegex(forge.ForgeWarning, "so it is"):
            forge.run(["true"])


class Interrupts(Case):
    def begun(self, process, name):
        """The run of a process of ours, when its command runs."""
        def find():
            self.assertIsNone(process.poll(), "it ended before its run began")
            found = [r for r in forge.runs(analysis=name) if r.status == "running"]
            return found[0] if found and "ready" in found[0].stdout else None

        return patiently(find, f"run {name}")

    def test_interrupt(self):
        """^C for Python alone: the run is asked to end, and is over when run() returns"""
        process = self.python(
            "import forge\ntry: forge.run(['sh', '-c', %r], id='int', grace=30)\n"
            "except KeyboardInterrupt: print(forge.get('int').status)" % READY, start_new_session=True)
        run = self.begun(process, "int")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60)[0], "cancelled\n")
        self.assertEqual(run.stdout, "ready\nasked\n")

    def test_terminal(self):
        """^C at a terminal reaches forge and Python: the run has its grace period once"""
        slow = "trap 'echo asked; sleep 1.5; echo done; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
        pid, master = pty.fork()
        if pid == 0:
            os.environ["PYTHONPATH"] = str(sys.path[1])
            os.execv(sys.executable, [sys.executable, "-c",
                     "import forge\ntry: forge.run(['sh', '-c', %r], id='tty', grace=30, progress=False)\n"
                     "except KeyboardInterrupt: print('status', forge.get('tty').status)" % slow])
        run = patiently(lambda: next((r for r in forge.runs(analysis="tty") if "ready" in r.stdout), None), "the run")
        os.write(master, b"\x03")
        seen = b""
        while b"status cancelled" not in seen:
            self.assertTrue(select.select([master], [], [], 60)[0], seen)
            seen += os.read(master, 4096)
        os.waitpid(pid, 0)
        os.close(master)
        self.assertEqual(run.stdout, "ready\nasked\ndone\n")

    def test_killed_caller(self):
        """SIGKILL for Python: its run is cancelled"""
        process = self.python("import forge; forge.run(['sh', '-c', %r], id='gone', grace=30)" % READY)
        run = self.begun(process, "gone")
        process.kill()
        process.communicate()
        patiently(lambda: run.is_over, "the end of the run")
        self.assertEqual((run.status, run.stdout), ("cancelled", "ready\nasked\n"))

    def test_submitted_stays(self):
        """SIGKILL for Python: a submitted run goes on"""
        process = self.python("import forge; print(forge.submit(['sleep', '60']).run_id); input()", stdin=subprocess.PIPE)
        run = forge.get(process.stdout.readline().strip())
        self.addCleanup(run.kill, True)
        process.kill()
        process.communicate()
        self.assertFalse(run.is_over)

    def test_wait_interrupted(self):
        """an interrupted wait() leaves the run alone"""
        run = forge.submit(["sleep", "60"], id="waited")
        self.addCleanup(run.kill, True)
        process = self.python("import forge, sys\nprint('x')\ntry: forge.get('waited').wait()\n"
                              "except KeyboardInterrupt: sys.exit(7)", start_new_session=True)
        process.stdout.readline()
        patiently(lambda: self.child_of(process.pid), "forge wait")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 7)
        self.assertFalse(run.is_over)

    @staticmethod
    def child_of(pid):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            for child in file.read().split():
                try:
                    with open(f"/proc/{child}/cmdline", "rb") as line:
                        if b"wait\0" in line.read():
                            return child
                except OSError:
                    pass
        return None

    def test_threads_interrupted(self):
        """^C with runs in threads: all of them end"""
        process = self.python(
            "import forge, concurrent.futures as c\n"
            "try:\n with c.ThreadPoolExecutor(5) as p: list(p.map(lambda n: forge.run(['sh', '-c', %r], id=f'th-{n}'), range(5)))\n"
            "except KeyboardInterrupt: pass" % READY, start_new_session=True)
        # Some of them wait in the queue of a small host.
        patiently(lambda: len(forge.runs(analysis="th-*")) == 5, "its runs")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        patiently(lambda: not [r for r in forge.runs(analysis="th-*") if not r.is_over], "their end")
        self.assertNotIn("succeeded", {r.status for r in forge.runs(analysis="th-*")})


if __name__ == "__main__":
    unittest.main()
