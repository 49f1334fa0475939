#!/usr/bin/env python3
"""run_notebook.py NOTEBOOK OUTPUT [NAME=VALUE...]: executes a Jupyter notebook for forge.

Runs inside the sandbox, in the runtime's Python. The output of cells is printed at once.
OUTPUT is written after each cell, and now and then during one, so that it has the cells that
ran, however the run ends. Parameters go into a cell after the one tagged "parameters". Exit
status: 0, or 1 when a cell failed or the kernel died, 2 when a parameter is not known, 3 when
the runtime lacks a Python package, 143 after SIGTERM.
"""
# SPDX-License-Identifier: Apache-2.0
import ast
import asyncio
import builtins
import difflib
import json
import os
import re
import signal
import sys
import tempfile
import time

# Suppresses a warning of the kernel's debugger, which is not used.
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

try:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
except ImportError as e:
    print(f"forge: this runtime cannot execute notebooks: {e}", file=sys.stderr)
    print("  hint: it needs nbformat, nbclient and ipykernel", file=sys.stderr)
    sys.exit(3)

TAG, INJECTED = "parameters", "injected-parameters"
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def say(text):
    sys.stdout.flush()
    print(f"forge: {text}", file=sys.stderr, flush=True)


# ---- parameters ----

def value_of(text):
    """The value of the text as JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def r_literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "c(" + ", ".join(map(r_literal, value)) + ")"
    return "list(" + ", ".join(f"{json.dumps(k)} = {r_literal(v)}" for k, v in value.items()) + ")"


def parameter_source(language, parameters):
    if language == "R":
        return "\n".join(f"{k} <- {r_literal(v)}" for k, v in parameters.items())
    return "\n".join(f"{k} = {v!r}" for k, v in parameters.items())


def parse_python(source):
    """The syntax tree of the source without its magics and shell lines."""
    lines = ("" if re.match(r"\s*[%!?]", line) else line for line in source.split("\n"))
    return ast.parse("\n".join(lines))


def assigned_names(language, source):
    """The names that a cell assigns at its top level, in order. Raises SyntaxError."""
    if language.lower() != "python":
        return re.findall(r"(?m)(?:^|;)[ \t]*([A-Za-z.][\w.]*)[ \t]*(?:<-|=(?!=))", source)
    names = []
    for node in parse_python(source).body:
        targets = (node.targets if isinstance(node, ast.Assign) else
                   [node.target] if isinstance(node, ast.AnnAssign) and node.value else [])
        names += [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return list(dict.fromkeys(names))


def free_names(language, sources):
    """The names that the cells use but never assign. Raises SyntaxError."""
    text = "\n".join(sources)
    if language.lower() != "python":
        return set(re.findall(r"[A-Za-z.][\w.]*", text)) - set(assigned_names(language, text))
    used = [n for n in ast.walk(parse_python(text)) if isinstance(n, ast.Name)]
    stored = {n.id for n in used if not isinstance(n.ctx, ast.Load)}
    return {n.id for n in used} - stored - set(dir(builtins))


def has_tag(cell, tag):
    return tag in cell.metadata.get("tags", [])


def find_parameters(notebook, language):
    """(cell that has them or None, names that it assigns, names that are only used).

    The assigned names are None if the cell cannot be parsed: the kernel will report the error.
    Without a tagged cell the first code cell is used, and names that are used but assigned nowhere.
    """
    code = [c for c in notebook.cells if c.cell_type == "code"]
    tagged = next((c for c in code if has_tag(c, TAG)), None)
    cell = tagged or next(iter(code), None)
    try:
        names = assigned_names(language, cell.source) if cell else []
        free = set() if tagged else free_names(language, [c.source for c in code])
    except SyntaxError:
        names, free = None, set()
    return cell, names, free


def unknown_parameter(name, names, free):
    known = names + sorted(free)
    near = difflib.get_close_matches(name, known, 1)
    has = f"it has: {', '.join(known)}" if known else f"it has none: tag a cell '{TAG}'"
    return (f"the notebook has no parameter '{name}' ({has})"
            + (f"; did you mean '{near[0]}'?" if near else ""))


def put_cell(notebook, at, language, parameters):
    if not parameters:
        return
    cell = nbformat.v4.new_code_cell(parameter_source(language, parameters))
    cell.metadata["tags"] = [INJECTED]
    # Minor versions before 5 have no cell ids. A random one would make each execution another file.
    cell["id"] = f"{INJECTED}-{at}"
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        cell.pop("id")
    notebook.cells.insert(at, cell)


def inject(notebook, language, parameters):
    """Returns False, after a message, when there is no such parameter."""
    notebook.cells = [c for c in notebook.cells if not has_tag(c, INJECTED)]
    cell, names, free = find_parameters(notebook, language)
    for name in parameters:
        if names is not None and name not in names and name not in free:
            say(unknown_parameter(name, names, free))
            return False
    behind = {k: v for k, v in parameters.items() if names is None or k in names}
    first = {k: v for k, v in parameters.items() if k not in behind}
    if behind and not has_tag(cell, TAG):
        say(f"no cell is tagged '{TAG}': {', '.join(behind)} is set behind the first code cell")
    at = notebook.cells.index(cell) + 1 if cell else 0
    put_cell(notebook, at, language, behind)
    put_cell(notebook, 0, language, first)
    return True


# ---- execution ----

def provide_kernel(name, language, argv):
    """Registers a kernel for this run, which takes precedence over all others."""
    # Hidden: forge reports files that cells leave in /tmp, and this is not one of them.
    top = tempfile.mkdtemp(prefix=".forge-kernels-")
    path = os.path.join(top, "kernels", name)
    os.makedirs(path)
    with open(os.path.join(path, "kernel.json"), "w", encoding="utf-8") as f:
        json.dump({"argv": argv, "display_name": language, "language": language}, f)
    os.environ["JUPYTER_PATH"] = top + os.pathsep + os.environ.get("JUPYTER_PATH", "")
    return name


class Saver:
    """Writes the notebook: a reader always sees a whole file, the old or the new one."""

    def __init__(self, notebook, path):
        self.notebook = notebook
        self.path = os.path.abspath(path)
        # Hidden: a file that a kill left half written is no result.
        self.part = os.path.abspath("." + os.path.basename(path) + ".part")
        self.next = 0.0

    def save(self):
        start = time.monotonic()
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.part, "w", encoding="utf-8") as f:
                nbformat.write(self.notebook, f)
            os.replace(self.part, self.path)
        except OSError as e:
            say(f"the notebook cannot be saved: {e.strerror}")
        # Saving a large notebook must not take more time than its cells.
        now = time.monotonic()
        self.next = now + max(2.0, 20 * (now - start))

    def save_sometimes(self):
        if time.monotonic() >= self.next:
            self.save()


def show(msg):
    """Copies the output of a cell to the run's own output, and so into its log."""
    content = msg["content"]
    if msg["msg_type"] == "stream":
        stream = sys.stderr if content.get("name") == "stderr" else sys.stdout
        stream.write(content.get("text", ""))
    elif msg["msg_type"] in ("execute_result", "display_data"):
        stream = sys.stdout
        text = content.get("data", {}).get("text/plain")
        if text:
            stream.write(text + "\n")
    else:
        return
    stream.flush()


class Client(NotebookClient):
    """Executes the notebook, shows its output and saves it."""

    def __init__(self, notebook, saver, **options):
        super().__init__(notebook, **options)
        self.saver = saver
        self.at = 0  # number of the cell that is executed, for messages

    def on_end(self):
        """forge ends the run: for the time limit, or for a user."""
        self.saver.save()
        os._exit(143)  # forge kills the kernel as well

    async def async_execute_cell(self, cell, cell_index, *args, **kwargs):
        if cell.cell_type != "code":
            return cell
        self.at += 1
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.on_end)
        try:
            return await super().async_execute_cell(cell, cell_index, *args, **kwargs)
        finally:
            self.saver.save()

    def process_message(self, msg, cell, cell_index):
        show(msg)
        try:
            return super().process_message(msg, cell, cell_index)
        finally:
            self.saver.save_sometimes()


def choose_kernel(notebook, language):
    if language == "R":
        return provide_kernel("forge-r", "R", ["R", "--slave", "-e", "IRkernel::main()",
                                               "--args", "{connection_file}"])
    if language.lower() == "python":
        # This interpreter: a kernel that the host has registered is another Python.
        return provide_kernel("forge-python", "python",
                              [sys.executable, "-m", "ipykernel_launcher", "-f",
                               "{connection_file}"])
    return notebook.metadata.get("kernelspec", {}).get("name", "python3")


def traceback_of(notebook):
    """The traceback of the failed cell, as its kernel wrote it, without colours."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("output_type") == "error":
                failed = "\n".join(output.get("traceback", []))
                if not has_tag(cell, "raises-exception"):
                    return COLOURS.sub("", failed)
    return ""


def execute(notebook, language, target):
    saver = Saver(notebook, target)
    for cell in notebook.cells:  # remove the outputs of an earlier execution
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    # Without the times of cells, the same results are the same file; the record of the run has its times.
    client = Client(notebook, saver, timeout=None, record_timing=False, kernel_name=choose_kernel(notebook, language),
                    resources={"metadata": {"path": os.getcwd()}})
    of = f"cell {{}} of {sum(c.cell_type == 'code' for c in notebook.cells)}"
    saver.save()
    try:
        client.execute()
        status = 0
    except CellExecutionError as e:
        sys.stdout.flush()
        print(traceback_of(notebook), file=sys.stderr)
        say(f"{of.format(client.at)} failed: {e.ename}: {COLOURS.sub('', str(e.evalue))}")
        status = 1
    except DeadKernelError:
        say(f"the kernel died in {of.format(client.at)}")
        status = 1
    except Exception as e:  # a kernel that does not start; each kind of kernel fails in its own way
        where = f"in {of.format(client.at)}" if client.at else "before the first cell"
        say(f"the notebook cannot be executed, {where}: {type(e).__name__}: {e}")
        status = 1
    saver.save()
    return status


def main():
    source, target, *words = sys.argv[1:]
    parameters = dict((name, value_of(value)) for name, _, value in
                      (word.partition("=") for word in words))
    try:
        notebook = nbformat.read(source, as_version=4)
    except Exception as e:  # any exception that a file that is no notebook may cause
        say(f"{source} is no notebook: {e}")
        return 1
    language = notebook.metadata.get("kernelspec", {}).get("language") or \
        notebook.metadata.get("language_info", {}).get("name", "python")
    if not inject(notebook, language, parameters):
        return 2
    return execute(notebook, language, target)


sys.exit(main())
