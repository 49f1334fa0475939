#!/usr/bin/env python3
"""Commands in the documents.

doc-commands.py check FORGE FILE...   every `forge ...` in them: the command and its options exist
doc-commands.py shell FILE N          the Nth block that has forge commands, as a shell script
doc-commands.py shown FILE N          what that block says that they print
doc-commands.py units DIR FILE...     everything in them that can be typed, each as DIR/N.sh (DIR/N.shown: what it is
                                      said to print), and DIR/index: N, FILE, the first command, separated by tabs
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import shlex
import subprocess
import sys

OPTION = re.compile(r"^ +(?:-(\w), )?--([a-z][a-z-]*)(?: (\S+))?(?:  .*)?$")
SPAN = re.compile(r"`([^`\n]+)`")
# Also behind a program that starts it, or a variable.
START = re.compile(r"(?:^|\s)(forge(?: .*|$))")


def blocks(path):
    """(first line number, kind, lines) of every fenced block."""
    found, kind, start, lines = [], None, 0, []
    for n, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif kind is None:
            kind, start, lines = line[3:].strip(), n + 1, []
        else:
            found.append((start, kind, lines))
            kind, lines = None, []
    return found


def joined(lines):
    """(offset, line) with lines that a backslash continues made one."""
    whole, at = "", 0
    for n, line in enumerate(lines):
        at = at if whole else n
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        yield at, re.sub(r"\s+", " ", (whole + line).strip()) if whole else line
        whole = ""


def commands_of_line(line):
    """The forge commands in a line of shell."""
    line = re.sub(r"(^|\s)#\s.*", "", line.removeprefix("$ "))
    for part in re.split(r"\$\(|;|&&|\|\|| \| |<\(", line):
        match = START.search(part.strip())
        if match:
            yield match[1].rstrip(") ")


def in_blocks(path):
    for start, kind, lines in blocks(path):
        if kind not in ("", "sh", "console"):
            continue
        for n, line in joined(lines):
            if kind == "console" and not line.startswith("$ "):
                continue
            # Elsewhere a block of no kind is a diagram, or what something printed.
            if kind or path.suffix == ".scd" or line.startswith("forge "):
                for command in commands_of_line(line):
                    yield start + n, command


def in_text(path):
    """Spans: `forge ps \\| show RUN` is two commands."""
    is_code = False
    for n, line in enumerate(path.read_text().splitlines(), 1):
        is_code ^= line.startswith("```")
        for span in [] if is_code else SPAN.findall(line):
            if not re.match(r"forge [a-z-]", span):
                continue
            first, *more = re.split(r" \\?\| ", span)
            yield n, first
            words = first.split()
            # "forge runtime list | check": words of one command, or commands of their own.
            for word in more:
                yield n, (word if word.startswith("forge ") else
                          f"forge {word}" if len(words) < 3 or words[2].isupper() else
                          f"forge {words[1]} {word}")


class Program:
    """What the program itself says that it takes."""

    def __init__(self, forge):
        self.forge = forge
        text = self.ask("--help")
        part = text.split("Commands:\n")[1].split("\n\n")[0]
        self.names = {line.split()[0] for line in part.splitlines()}
        self.known = {None: self.options(text)}

    def ask(self, *words):
        return subprocess.run([self.forge, *words], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    @staticmethod
    def options(text):
        """{"-i": takes a value, "--input": ...}"""
        found = {}
        for letter, name, value in (m.groups() for m in map(OPTION.match, text.splitlines()) if m):
            found["--" + name] = bool(value)
            if letter:
                found["-" + letter] = bool(value)
        return found

    def options_of(self, name):
        if name not in self.known:
            self.known[name] = self.options(self.ask("help", name))
        return self.known[name]

    def problem(self, command):
        """Why command cannot be typed so, or None."""
        text = re.sub(r"[\[\]{}]", " ", command).replace("…", "...")
        try:
            words = shlex.split(text)[1:]
        except ValueError as e:
            return str(e)
        name, at = None, 0
        while at < len(words):
            word, at = words[at], at + 1
            if word == "--":
                return None
            if word.startswith("-"):
                why, skip = self.check_option(name, word)
                if why:
                    return why
                at += skip
            elif name is None:
                if word not in self.names:
                    return None if word == "..." or word.isupper() else f"no command '{word}'"
                name = word
            elif name in ("run", "submit") and not word.endswith(".ipynb"):
                return None
        return None

    def check_option(self, name, word):
        """(problem, how many words its value takes)."""
        option, _, value = word.partition("=")
        options = self.options_of(name)
        if option in options:
            return None, int(options[option] and not value)
        letters = word[1:]
        if not word.startswith("--") and all(f"-{c}" in options for c in letters):
            return None, int(options[f"-{letters[-1]}"])
        return f"'forge {name or ''}' has no option {option}", 0


def check(forge, files):
    program, seen, failed = Program(forge), 0, 0
    for path in map(pathlib.Path, files):
        places = list(in_blocks(path))
        if path.suffix == ".md":
            places += in_text(path)
        for n, command in places:
            seen += 1
            why = program.problem(command)
            if why:
                failed += 1
                print(f"{path}:{n}: {why}: {command}")
    print(f"{seen} commands")
    return 1 if failed or not seen else 0


def with_forge(path):
    return [(kind, lines) for _, kind, lines in blocks(path)
            if kind in ("sh", "console") and any(re.search(r"\bforge ", x) for x in lines)]


def split(kind, lines):
    """What is typed in a block, and what is printed."""
    typed, shown, is_typed = [], [], False
    for line in lines:
        is_typed = kind != "console" or line.startswith("$ ") or (is_typed and typed[-1].endswith("\\"))
        if is_typed:
            typed.append(line.removeprefix("$ ") if kind == "console" else line)
        else:
            shown.append(line)
    return typed, shown


def examples(path):
    """(typed, shown) of every block of shell, of a manual page those of its EXAMPLES; and of each command in the text."""
    if path.suffix == ".scd":
        # Those of section 5 are configurations.
        lines = path.read_text().splitlines()
        first = lines.index("# EXAMPLES") if "# EXAMPLES" in lines and ".1." in path.name else len(lines)
        return [split(kind, block) for start, kind, block in blocks(path) if start > first]
    found = [split(kind, block) for _, kind, block in blocks(path) if kind in ("sh", "console")]
    # Of two words it is the name of a command, which check() looks up.
    spans = [command for _, command in in_text(path) if len(command.split()) > 2]
    return found + [([command], []) for command in dict.fromkeys(spans)]


def units(to, files):
    index = []
    for path in map(pathlib.Path, files):
        for typed, shown in examples(path):
            n = len(index) + 1
            first = next(line for _, line in joined(typed))
            index.append(f"{n}\t{path}\t{re.sub(r' +# .*', '', first)}\n")
            (to / f"{n}.sh").write_text("\n".join(typed) + "\n")
            if shown:
                (to / f"{n}.shown").write_text("\n".join(shown) + "\n")
    (to / "index").write_text("".join(index))
    return 0


def main():
    what, *rest = sys.argv[1:]
    if what == "check":
        return check(rest[0], rest[1:])
    if what == "units":
        return units(pathlib.Path(rest[0]), rest[1:])
    typed, shown = split(*with_forge(pathlib.Path(rest[0]))[int(rest[1]) - 1])
    print("\n".join(typed if what == "shell" else shown))
    return 0


sys.exit(main())
