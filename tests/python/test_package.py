# SPDX-License-Identifier: Apache-2.0
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from base import PACKAGE, TOP, Case

SOURCES = sorted((PACKAGE / "forge").glob("*.py"))
# What came after Python 3.9.
NEWER = {
    "process_group", "pairwise", "zip_strict", "TaskGroup", "timeout_at", "Runner", "ExceptionGroup", "aiter", "anext",
    "ParamSpec", "TypeAlias", "TypeGuard", "Self", "Never", "assert_never", "Unpack", "slots", "kw_only", "tomllib",
    "StrEnum", "chdir", "getencoding", "bit_count", "KW_ONLY", "add_note", "fromisoformat", "orig_argv", "EncodingWarning",
}


def blocks(path):
    """The Python blocks of a document with their lines."""
    text = path.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        yield text[:match.start()].count("\n") + 2, match.group(1)


class Package(Case):
    def test_types(self):
        """mypy --strict finds nothing"""
        if not shutil.which("mypy"):
            self.skipTest("needs Debian's mypy")
        done = subprocess.run(
            ["mypy", "--strict", "--cache-dir", str(self.dir), "--python-version", "3.9", "forge"],
            cwd=PACKAGE, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_types_of_callers(self):
        """a caller's mistake is found by mypy: the package is typed"""
        if not shutil.which("mypy"):
            self.skipTest("needs Debian's mypy")
        self.write("caller.py", "import forge\nforge.run(['true'], memory=[1])\nx: int = forge.run(['true']).status\n"
                                "forge.aio.run(['true'])\nforge.aio.pipelines.run(jobs='x')\n")
        done = subprocess.run(
            ["mypy", "--strict", "--cache-dir", str(self.dir), "caller.py"], env=dict(os.environ, MYPYPATH=str(PACKAGE)),
            capture_output=True, text=True, check=False)
        self.assertIn('caller.py:2: error: Argument "memory" to "run"', done.stdout)
        self.assertIn("caller.py:3: error: Incompatible types in assignment", done.stdout)
        self.assertIn('caller.py:5: error: Argument "jobs" to "run"', done.stdout)
        self.assertNotIn("caller.py:1:", done.stdout)

    def test_python39(self):
        """Python 3.9: its syntax, and nothing of newer standard libraries"""
        for path in SOURCES:
            tree = ast.parse(path.read_text(), str(path), feature_version=(3, 9))
            future = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
            self.assertTrue(future, path)
            for node in ast.walk(tree):
                self.assertNotIsInstance(node, getattr(ast, "Match", ()))
                name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else \
                    node.arg if isinstance(node, ast.keyword) else None
                self.assertNotIn(name, NEWER, f"{path}:{getattr(node, 'lineno', 0)}")

    def test_one_door(self):
        """the package reads neither FORGE_HOME nor the store"""
        for path in SOURCES:
            text = path.read_text()
            for word in ("FORGE_HOME", "sqlite3", "record.json", "/objects"):
                self.assertNotIn(word, text, path)

    def test_imports(self):
        """importing the package loads neither asyncio nor what Python does not come with"""
        code = "import sys, forge; print('asyncio' in sys.modules, 'IPython' in sys.modules); print(forge.aio.run.__name__)"
        done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(PACKAGE)),
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False False\nrun\n")
        for path in SOURCES:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        self.assertIn(alias.name.split(".")[0], sys.stdlib_module_names)
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    self.assertIn(node.module.split(".")[0], sys.stdlib_module_names)

    def install(self, *options):
        try:
            import venv  # noqa: F401
            import ensurepip  # noqa: F401
            import setuptools  # noqa: F401
            import wheel  # noqa: F401
        except ImportError as missing:
            self.skipTest(f"needs Debian's python3-venv, python3-setuptools and python3-wheel: {missing}")
        # setuptools builds in the directory that it is given.
        shutil.copytree(PACKAGE, self.dir / "python", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        place = self.dir / "venv"
        subprocess.run(["/usr/bin/python3", "-m", "venv", *options, str(place)], check=True)
        done = subprocess.run([str(place / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check",
                               "--no-build-isolation", "--no-index", "./python"],
                              cwd=self.dir, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return place

    def test_pip(self):
        """pip installs it from a checkout without network, with its types"""
        place = self.install("--system-site-packages")
        code = "import forge, sys; r = forge.run(['echo', 'x'], check=True); print(r.stdout, forge.__file__, forge.__version__)"
        done = subprocess.run([str(place / "bin/python"), "-c", code], cwd="/", capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, rf"^x\n {re.escape(str(place))}/.*/forge/__init__.py 0\.1\.0\n$")
        (typed,) = place.rglob("forge/py.typed")
        shown = subprocess.run([str(place / "bin/python"), "-m", "pip", "show", "--disable-pip-version-check", "-f", "forge"],
                               capture_output=True, text=True, check=True).stdout
        self.assertIn("Requires: \n", shown)
        installed = {p.name for p in typed.parent.glob("*.py")}
        self.assertEqual(installed, {p.name for p in SOURCES})


class Documents(Case):
    def execute(self, path):
        """In one process, one block after the other, as at a prompt."""
        (self.dir / "data").mkdir()
        (self.dir / "data").chmod(0o755)
        self.write("data/x.csv", "x,y\n1,2\n2,4\n")
        self.write("fit.py", "import sys\nprint(open(sys.argv[1]).read())\nopen('fit.json', 'w').write('{}')\n")
        namespace, count = {}, 0
        for line, block in blocks(path):
            code = compile("\n" * (line - 1) + block, str(path), "exec")
            exec(code, namespace)
            count += 1
        return count

    def quietly(self, path):
        import contextlib
        import io

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            count = self.execute(path)
        return count, out.getvalue()

    def test_readme(self):
        """python/README.md: its Python runs"""
        count, said = self.quietly(PACKAGE / "README.md")
        self.assertEqual(count, 1)
        self.assertRegex(said, r"^succeeded Succeeded in ")
        self.assertIn("fit.json 2 sha256:", said)

    def test_migrating(self):
        """docs/MIGRATING.md: its Python runs"""
        count, said = self.quietly(TOP / "docs/MIGRATING.md")
        self.assertGreaterEqual(count, 7)
        self.assertIn("Killed: memory 64.00 MiB of 64.00 MiB", said)
        self.assertEqual((self.dir / "results/fit.json").read_text(), "{}")
        self.assertIn("['succeeded', 'succeeded'", said)
        self.assertRegex(said, r"0 Succeeded in .* 3\n")

    def test_names(self):
        """docs/MIGRATING.md and python/README.md: every name of forge in them exists"""
        import forge

        for path in (TOP / "docs/MIGRATING.md", PACKAGE / "README.md"):
            for name in re.findall(r"`forge\.(\w+)", path.read_text()):
                self.assertTrue(hasattr(forge, name) or name in ("yaml",), f"{path}: forge.{name}")
        text = (TOP / "docs/MIGRATING.md").read_text()
        for name in forge.compat.__dict__:
            if getattr(getattr(forge.compat, name), "__module__", "") == "forge.compat" and not name.startswith("_"):
                self.assertTrue(name in text or name.endswith("Executor"), name)
        for name, kind in vars(forge.errors).items():
            if isinstance(kind, type) and issubclass(kind, forge.RunError):
                self.assertIn(name, text)


class Jupyter(Case):
    def test_progress(self):
        """a Jupyter kernel: progress is a display that is updated, and empty at the end"""
        try:
            import ipykernel  # noqa: F401
            import nbformat
            from nbclient import NotebookClient
        except ImportError:
            self.skipTest("needs Debian's python3-nbclient and python3-ipykernel")
        kernels = self.dir / "kernels/here"
        kernels.mkdir(parents=True)
        (kernels / "kernel.json").write_text(json.dumps({
            "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here",
            "language": "python", "env": {"PYTHONPATH": str(PACKAGE)}}))
        os.environ["JUPYTER_PATH"] = str(self.dir)
        self.addCleanup(os.environ.pop, "JUPYTER_PATH")
        notebook = nbformat.v4.new_notebook(cells=[
            nbformat.v4.new_code_cell("import forge\nr = forge.run(['sleep', '2.5'], id='in-a-notebook')\nr"),
            nbformat.v4.new_code_cell("import asyncio\n(await forge.aio.run(['echo', 'x'])).status"),
        ])
        seen = []

        class Client(NotebookClient):
            def process_message(self, msg, cell, cell_index):
                if msg["msg_type"] in ("display_data", "update_display_data"):
                    seen.append((msg["msg_type"], msg["content"]["data"].get("text/plain")))
                return super().process_message(msg, cell, cell_index)

        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Jupyter's own
            Client(notebook, kernel_name="here", timeout=120).execute()
        self.assertEqual(seen[0][0], "display_data", seen)
        self.assertRegex(seen[0][1], r"^forge: in-a-notebook: running 1 s$")
        self.assertEqual({kind for kind, _ in seen[1:]}, {"update_display_data"})
        self.assertEqual(seen[-1][1], "")
        outputs = notebook.cells[0].outputs
        self.assertEqual([o.output_type for o in outputs], ["display_data", "execute_result"])
        self.assertRegex(outputs[1].data["text/plain"], r"^<forge.Run \w+ succeeded>$")
        self.assertEqual(notebook.cells[1].outputs[0].data["text/plain"], "'succeeded'")


if __name__ == "__main__":
    unittest.main()
