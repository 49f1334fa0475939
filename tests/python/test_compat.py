# SPDX-License-Identifier: Apache-2.0
import abc
import dataclasses
import inspect
import json
import os
import stat

import forge
from base import TOP, Case
from forge import compat


def names(function):
    return list(inspect.signature(function).parameters)


class Compat(Case):
    def test_signatures(self):
        """compat: the names and signatures that callers have"""
        same = ["cmd", "cwd", "env", "timeout_seconds", "analysis_id"]
        self.assertEqual(names(forge.isolated_run), same)
        self.assertEqual(names(forge.run_tool_isolated), same)
        self.assertEqual(names(forge.run_post_process_isolated), same)
        self.assertEqual(names(forge.run_python_script), ["script", "args", *same[1:], "runtime"])
        self.assertEqual(names(forge.run_notebook_isolated), ["notebook", "parameters", *same[1:], "runtime"])
        for function in (forge.isolated_run, forge.run_tool_isolated, forge.run_post_process_isolated):
            found = inspect.signature(function).parameters
            self.assertTrue(all(found[name].default is None for name in same[1:]))
        self.assertEqual(names(forge.create_analysis_temp_dir), ["analysis_id"])
        self.assertEqual(names(forge.cleanup_analysis_temp_dir), ["path_or_id"])
        fields = [f.name for f in dataclasses.fields(forge.RuntimeResult)]
        self.assertEqual(fields, ["returncode", "stdout", "stderr", "status", "reason", "completion_notes", "run_id",
                                  "duration", "outputs"])
        self.assertTrue(issubclass(forge.Executor, abc.ABC))
        self.assertEqual(forge.Executor.__abstractmethods__, {"run_analysis", "check_status", "kill", "get_logs"})
        self.assertEqual(names(forge.Executor.run_analysis), ["self", "spec"])
        for name in names_of_compat():
            self.assertIs(getattr(forge, name), getattr(compat, name))

    def test_isolated_run(self):
        """isolated_run: a result, never an exception for a run that failed"""
        result = forge.isolated_run(["sh", "-c", "echo out; echo err >&2; exit 4"], timeout_seconds=20, analysis_id="old-1")
        self.assertEqual((result.returncode, result.stdout, result.stderr, result.status), (4, "out\n", "err\n", "failed"))
        self.assertIn("exit code 4", result.completion_notes)
        self.assertEqual(forge.get("old-1").run_id, result.run_id)
        self.assertGreater(result.duration, 0)
        late = forge.isolated_run(["sleep", "60"], timeout_seconds=0.3)
        self.assertEqual((late.returncode, late.status, late.reason), (124, "killed", "wall_time"))

    def test_directory(self):
        """isolated_run with a directory of create_analysis_temp_dir: files go in and come out"""
        where = forge.create_analysis_temp_dir("an-1")
        self.addCleanup(forge.cleanup_analysis_temp_dir, where)
        self.assertEqual(stat.S_IMODE(os.stat(where.parent).st_mode), 0o700)
        (where / "in.csv").write_text("1,2\n")
        (where / "fit.py").write_text(
            "import sys\nprint(open('in.csv').read(), sys.argv[1:])\nopen('out.csv', 'w').write('3')\nsys.exit(5)\n")
        result = forge.run_python_script("fit.py", ["a"], cwd=where, analysis_id="an-1")
        self.assertEqual((result.returncode, result.stdout), (5, "1,2\n ['a']\n"), result.stderr)
        self.assertEqual((where / "out.csv").read_text(), "3")
        self.assertEqual([o.path for o in result.outputs], ["out.csv"])
        other = forge.create_analysis_temp_dir("an-1.x")
        self.assertTrue(forge.cleanup_analysis_temp_dir("an-1"))
        self.assertFalse(where.parent.exists())
        self.assertTrue(other.exists())
        self.assertFalse(forge.cleanup_analysis_temp_dir("an-1"))
        self.assertTrue(forge.cleanup_analysis_temp_dir(other))
        self.assertFalse(other.parent.exists())
        self.assertFalse(forge.cleanup_analysis_temp_dir(other))

    def test_as_documented(self):
        """isolated_run: MIGRATING.md says what a change in place prints, and what is left without cwd"""
        text = (TOP / "docs/MIGRATING.md").read_text()
        self.write("in.txt", "1\n")
        result = forge.isolated_run(["sh", "-c", "echo 2 >in.txt"], cwd=".")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual((self.dir / "in.txt").read_text(), "1\n")
        # Which of two layers refuses it first depends on the file system.
        said = result.stderr.strip().replace("sh: 1: ", "sh: ").split(": ")
        self.assertEqual(said[:2], ["sh", "cannot create in.txt"])
        self.assertIn("(`sh: cannot create in.txt: ", text)
        self.assertTrue(f": {said[2]}`" in text or f"`{said[2]}`" in text, said)
        self.write("fit.py", "open('out.csv', 'w').write('3')\n")
        result = forge.run_python_script("fit.py")
        self.assertEqual((result.returncode, [o.path for o in result.outputs]), (0, ["out.csv"]))
        self.assertFalse((self.dir / "out.csv").exists())
        self.assertEqual(forge.run_python_script("fit.py", cwd=".").returncode, 0)
        self.assertEqual((self.dir / "out.csv").read_text(), "3")

    def test_cleanup_refuses(self):
        """cleanup_analysis_temp_dir removes nothing else, and follows no link"""
        (self.dir / "mine").mkdir()
        with self.assertRaises(forge.UsageError):
            forge.cleanup_analysis_temp_dir(self.dir / "mine")
        with self.assertRaises(forge.UsageError):
            forge.cleanup_analysis_temp_dir("..")
        with self.assertRaises(forge.UsageError):
            forge.create_analysis_temp_dir("../x")
        link = f"/tmp/forge-analysis-link{os.getpid()}.abc"
        os.symlink(self.dir / "mine", link)
        self.addCleanup(os.unlink, link)
        self.assertFalse(forge.cleanup_analysis_temp_dir(f"link{os.getpid()}"))
        with self.assertRaises(forge.UsageError):
            forge.cleanup_analysis_temp_dir(link)
        self.assertTrue((self.dir / "mine").is_dir())

    def test_env(self):
        """isolated_run: of a changed copy of os.environ what was changed is passed on"""
        os.environ["OLD_SECRET"] = "s"
        self.addCleanup(os.environ.pop, "OLD_SECRET")
        result = forge.isolated_run(["env"], env=dict(os.environ, NEW="1", HOME="/elsewhere"))
        self.assertIn("NEW=1\n", result.stdout)
        self.assertNotIn("OLD_SECRET", result.stdout)
        self.assertNotIn("/elsewhere", result.stdout)

    def test_named_files(self):
        """isolated_run: files that the arguments name can be read"""
        path = self.write("s.py", "print('read')\n")
        self.assertEqual(forge.isolated_run(["python3", str(path)]).stdout, "read\n")
        self.assertEqual(forge.isolated_run(["python3", "s.py"]).stdout, "read\n")

    def test_profiles(self):
        """run_tool_isolated, run_post_process_isolated: under their profiles, which RESOURCE_LIMITS has"""
        tool = forge.get(forge.run_tool_isolated(["true"]).run_id)
        post = forge.get(forge.run_post_process_isolated(["true"]).run_id)
        self.assertEqual((tool.record["profile"], post.record["profile"]), ("tool", "post_process"))
        self.assertEqual(tool.limits["memory_bytes"], forge.RESOURCE_LIMITS["tool"]["memory_bytes"])
        self.assertEqual(post.limits["wall_seconds"], forge.RESOURCE_LIMITS["post_process"]["wall_seconds"])
        self.assertIsNone(forge.RESOURCE_LIMITS["default"]["cpu_seconds"])
        self.assertGreaterEqual(set(forge.RESOURCE_LIMITS), {"default", "notebook", "tool", "post_process"})

    def test_notebook(self):
        """run_notebook_isolated: executes it with parameters under the profile notebook"""
        try:
            import ipykernel, nbclient  # noqa: E401,F401
        except ImportError:
            self.skipTest("needs Debian's python3-nbclient and python3-ipykernel")
        cell = {"cell_type": "code", "execution_count": None, "outputs": [], "metadata": {}}
        self.write("n.ipynb", json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3"}}, "cells": [
                dict(cell, source="alpha = 1", metadata={"tags": ["parameters"]}), dict(cell, source="print('alpha is', alpha)")]}))
        with open("forge.yaml", "w") as config:
            config.write("runtimes: {notebook: {kind: system, commands: [python3], python: [ipykernel, nbclient]}}\n")
        result = forge.run_notebook_isolated("n.ipynb", {"alpha": 0.5})
        self.assertEqual(result.status, "succeeded", result.completion_notes + result.stderr)
        self.assertIn("alpha is 0.5", result.stdout)
        self.assertEqual([o.path for o in result.outputs], ["outputs/n.ipynb"])
        self.assertEqual(forge.get(result.run_id).record["profile"], "notebook")

    def test_executor(self):
        """Executor: run_analysis, check_status, kill, get_logs"""
        executor = forge.get_executor()
        self.assertIsInstance(executor, forge.LocalExecutor)
        run_id = executor.run_analysis({"command": ["sh", "-c", "echo o; echo e >&2"], "memory": "64M",
                                        "analysis_id": "spec-1", "timeout_seconds": 20})
        forge.get(run_id).wait()
        self.assertEqual(executor.check_status(run_id), "succeeded")
        self.assertEqual(executor.get_logs(run_id), "o\ne\n")
        self.assertFalse(executor.kill(run_id))
        run = forge.get("spec-1")
        self.assertEqual((run.limits["memory_bytes"], run.limits["wall_seconds"], run.record["executor"]), (64 << 20, 20, "local"))
        long = executor.run_analysis({"cmd": ["sleep", "60"]})
        self.assertTrue(executor.kill(long))
        self.assertEqual(executor.check_status(long), "cancelled")
        with self.assertRaises(forge.UsageError):
            executor.run_analysis({"memory": "1G"})
        with self.assertRaisesRegex(forge.UsageError, "unknown executor 'nope' .have: local, docker"):
            forge.get_executor("nope")
        self.assertIsInstance(forge.get_executor("docker"), compat.ContainerExecutor)


def names_of_compat():
    return ["isolated_run", "create_analysis_temp_dir", "cleanup_analysis_temp_dir", "run_python_script",
            "run_notebook_isolated", "run_post_process_isolated", "run_tool_isolated", "RESOURCE_LIMITS",
            "RuntimeResult", "Executor", "LocalExecutor", "get_executor"]
