#!/usr/bin/env python3
"""run_notebook.py NOTEBOOK OUTPUT [NAME=VALUE...]: executes a Jupyter notebook for forge.

Runs inside the sandbox, in the runtime's Python. The executed notebook is written to OUTPUT,
also when a cell fails: then with that cell's traceback. Parameters go into a cell behind the
one tagged "parameters", or to the top. Exit status: 0, or 1 when a cell failed or the kernel
died, or 3 when the runtime lacks what is needed.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import tempfile

# A warning of the kernel's debugger, which nobody attaches to.
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

try:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
except ImportError as e:
    print(f"forge: this runtime cannot execute notebooks: {e}", file=sys.stderr)
    print("  hint: it needs nbformat, nbclient and ipykernel", file=sys.stderr)
    sys.exit(3)


def value_of(text):
    """JSON where it is JSON, else the text itself."""
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


def inject(notebook, language, parameters):
    if not parameters:
        return
    cell = nbformat.v4.new_code_cell(parameter_source(language, parameters))
    cell.metadata["tags"] = ["injected-parameters"]
    # Minor versions before 5 do not know cell ids.
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        cell.pop("id", None)
    cells = [c for c in notebook.cells
             if "injected-parameters" not in c.metadata.get("tags", [])]
    at = next((i + 1 for i, c in enumerate(cells)
               if "parameters" in c.metadata.get("tags", [])), 0)
    notebook.cells = cells[:at] + [cell] + cells[at:]


def provide_kernel(name, language, argv):
    """A kernel without having been registered by anybody, before all that were."""
    top = tempfile.mkdtemp(prefix="kernels-")
    path = os.path.join(top, "kernels", name)
    os.makedirs(path)
    with open(os.path.join(path, "kernel.json"), "w", encoding="utf-8") as f:
        json.dump({"argv": argv, "display_name": language, "language": language}, f)
    os.environ["JUPYTER_PATH"] = top + os.pathsep + os.environ.get("JUPYTER_PATH", "")
    return name


def write(notebook, path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8") as f:
        nbformat.write(notebook, f)
    os.replace(path + ".part", path)


def show_streams(notebook):
    """What the cells printed, so that the log has it too."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("output_type") == "stream":
                stream = sys.stderr if output.get("name") == "stderr" else sys.stdout
                stream.write(output.get("text", ""))
    sys.stdout.flush()


def main():
    source, target, *words = sys.argv[1:]
    parameters = dict((name, value_of(value)) for name, _, value in
                      (word.partition("=") for word in words))
    try:
        notebook = nbformat.read(source, as_version=4)
    except Exception as e:  # whatever a file that is no notebook makes it raise
        print(f"forge: {source} is no notebook: {e}", file=sys.stderr)
        return 1
    spec = notebook.metadata.get("kernelspec", {})
    language = spec.get("language") or notebook.metadata.get(
        "language_info", {}).get("name", "python")
    kernel = spec.get("name", "python3")
    if language == "R":
        kernel = provide_kernel("forge-r", "R", ["R", "--slave", "-e", "IRkernel::main()",
                                                 "--args", "{connection_file}"])
    elif language.lower() == "python":
        # This very interpreter: one that the host has registered is another Python.
        kernel = provide_kernel("forge-python", "python",
                                [sys.executable, "-m", "ipykernel_launcher", "-f",
                                 "{connection_file}"])
    inject(notebook, language, parameters)
    client = NotebookClient(notebook, timeout=None, kernel_name=kernel,
                            resources={"metadata": {"path": os.getcwd()}})
    status = 0
    try:
        client.execute()
    except CellExecutionError as e:
        print(f"forge: a cell failed: {e.ename}: {e.evalue}", file=sys.stderr)
        print(e.traceback, file=sys.stderr)
        status = 1
    except DeadKernelError:
        print("forge: the kernel died", file=sys.stderr)
        status = 1
    finally:
        write(notebook, target)
        show_streams(notebook)
    return status


sys.exit(main())
