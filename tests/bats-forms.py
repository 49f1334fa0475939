#!/usr/bin/env python3
"""Assertions in bats files that cannot fail. TAP.

    bats-forms.py [FILE...]

Bats stops a test where `set -e` would, and that has two holes: the status of `! command` is ignored, and so
is that of everything in `a && b` but the last. An assertion of either form in the middle of a test passes
whatever happens; at the end of one it works until somebody adds a line. Both are refused in every @test, and
in functions except as the last command, whose status is what the function returns. Without FILE: all
tests/**/*.bats and tests/lib/*.bash, after a test of this test.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent

SAMPLE = r'''
setup() {
    cd "$T"
    helper || skip "no helper"
}
is_gone() {
    ! pgrep sleeper
}
gone_at_once() { ! pgrep sleeper; }
both() {
    [ -e a ] &&
        [ -e b ]
}
silent() {
    ! pgrep sleeper #BANG
    [ -e a ] && [ -e b ] #AND
    echo
}
@test "one" {
    ! grep -q x file #BANG
    [ "$status" -eq 0 ] && [[ "$output" == *x* ]] #AND
    start && id=$x #AND
    if [ -e a ] && [ -e b ]; then
        ! true #BANG
    fi
    while ! [ -e a ] && sleep 1; do :; done
    for x in a b; do [ -e $x ] && [ -e y ]; done #AND
    run sh -c 'a && ! b
        c && d'
    cat <<X
! a && b
X
    [[ -e a && -e b ]]
    (( a && b ))
    ok=$(a && b)
    kill "$pid" && wait "$pid" || true
    a || { b && c; } #AND
    (cd a && b)
    nested() { a && b; }
    inner() {
        a && b #AND
        c && ! d
    }
    ! mountpoint -q x || umount x
    while :; do
        [ -e a ] && break
        [ -e a ] && #AND
            [ -e b ]
    done
    ! last #BANG
}
@test "two" { [ a ] && [ b ]; } #AND
'''


class Scanner:
    """Blanks out quotes, substitutions, tests, comments and here-documents; keeps the lines."""

    def __init__(self, text):
        self.text, self.at, self.out, self.heredocs = text, 0, [], []

    def put(self, piece):
        self.out.append(re.sub(r"[^\n]", "_", piece))

    def skip_quoted(self, end):
        start = self.at
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != end:
            if end == '"' and self.text[self.at] == "\\":
                self.at += 1
            elif end == '"' and self.text.startswith("$(", self.at):
                self.skip_nested("(", ")")
                continue
            self.at += 1
        self.at += 1
        return start

    def skip_nested(self, opening, closing):
        """From the opening one at or after self.at to behind its closing one."""
        depth = 0
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "\\":
                self.at += 1
            elif c in "'\"":
                self.skip_quoted(c)
                continue
            elif c == opening:
                depth += 1
            elif c == closing:
                depth -= 1
                if depth == 0:
                    self.at += 1
                    return
            self.at += 1

    def skip_heredocs(self):
        for word, strips in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at:end]
                self.out.append("\n")
                self.at = end + 1
                if (line.lstrip("\t") if strips else line) == word:
                    break
        self.heredocs = []

    def step(self):
        text, start = self.text, self.at
        c = text[start]
        heredoc = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2").match(text, start)
        if text.startswith("<<<", start):
            self.out.append("___")
            self.at += 3
        elif heredoc:
            self.heredocs.append((heredoc.group(3), bool(heredoc.group(1))))
            self.at = heredoc.end()
            self.put(heredoc.group())
        elif c == "\\":
            self.at += 2
            self.out.append("__" if text[start + 1:start + 2] != "\n" else "  ")
        elif c in "'\"":
            self.skip_quoted(c)
            self.put(text[start:self.at].replace("\n", "_"))
        elif text.startswith(("$(", "<(", ">("), start):
            self.skip_nested("(", ")")
            self.put(text[start:self.at].replace("\n", "_"))
        elif text.startswith("${", start):
            self.skip_nested("{", "}")
            self.put(text[start:self.at])
        elif text.startswith("((", start):
            self.skip_nested("(", ")")
            self.put(text[start:self.at])
        elif re.compile(r"\[\[\s").match(text, start):
            self.at = text.index("]]", start) + 2
            self.put(text[start:self.at])
        elif c == "#" and (start == 0 or text[start - 1] in " \t\n;"):
            while self.at < len(text) and text[self.at] != "\n":
                self.at += 1
        else:
            self.out.append(c)
            self.at += 1
            if c == "\n":
                self.skip_heredocs()

    def lines(self):
        while self.at < len(self.text):
            self.step()
        return "".join(self.out).split("\n")


def numbers(text):
    """The line of the source that each scanned line begins in: what spans lines was joined."""
    scanner, starts = Scanner(text), [1]
    while scanner.at < len(text):
        before = len(scanner.out)
        scanner.step()
        for piece in scanner.out[before:]:
            starts.extend([text.count("\n", 0, scanner.at) + 1] * piece.count("\n"))
    return starts


def statements(line):
    """The commands of a line that are not conditions."""
    is_condition = False
    for part in re.split(r";;|;|(?<!&)&(?!&)", line):
        words = part.strip()
        while True:
            head = re.match(r"(if|elif|while|until|then|do|else|\{|\()(\s+|$)", words)
            opened = re.match(r"(@test .*|[\w-]+\(\)) \{(\s+|$)", words)
            if not head and not opened:
                break
            if head:
                is_condition = head.group(1) in ("if", "elif", "while", "until")
            words = words[(head or opened).end():]
        if words and not is_condition and words != "}":
            yield words


def is_form(words):
    """Which of the forms it is, or None."""
    if re.match(r"!\s", words) and "||" not in words:
        return "BANG"
    braces = re.search(r"\|\|\s*\{(.*)", words)
    if braces:
        return is_form(braces.group(1).strip())
    # The status of a subshell is seen; what decides where to go on asserts nothing.
    words = re.sub(r"\([^()]*\)", "_", words)
    if "&&" in words and "||" not in words and not re.search(r"&&\s*(return|break|continue|exit|skip)\b", words):
        return "AND"
    return None


def check(text):
    """(line number, form) of what is wrong."""
    lines, starts = Scanner(text).lines(), numbers(text)
    for i in range(len(lines) - 1, 0, -1):
        if re.search(r"(&&|\|\||[^|]\|)\s*$", lines[i - 1]):
            lines[i - 1:i + 1] = [lines[i - 1] + " " + lines[i].strip()]
            del starts[i]
    in_test = is_nested = False
    for i, line in enumerate(lines):
        if re.match(r"\S", line):
            in_test, is_nested = line.startswith("@test"), False
        elif re.match(r"    [\w-]+\(\) \{$", line):
            is_nested = True
        elif line == "    }":
            is_nested = False
        following = next((x.strip() for x in lines[i + 1:] if x.strip()), "")
        is_one_line_function = re.match(r"[\w-]+\(\) \{.*\}$", line.strip())
        if is_one_line_function or (following == "}" and (is_nested or not in_test)):
            continue
        if not in_test and not re.match(r"\s", line):
            continue  # outside of functions: runs when the file is read
        for words in statements(line):
            form = is_form(words)
            if form:
                yield starts[i], form


def self_test():
    wanted = [(n, mark.group(1)) for n, line in enumerate(SAMPLE.split("\n"), 1)
              for mark in [re.search(r"#(BANG|AND)$", line)] if mark]
    return wanted, list(check(SAMPLE))


ADVICE = {"BANG": "the status of '! command' is ignored: use run and one assertion a line",
          "AND": "in 'a && b' only b is checked: one a line"}


def main():
    files = [pathlib.Path(name) for name in sys.argv[1:]] or sorted(
        [*ROOT.glob("**/*.bats"), *ROOT.glob("lib/*.bash")])
    wanted, got = self_test()
    print(f"{'ok' if wanted == got else 'not ok'} 1 both forms are found where they are")
    if wanted != got:
        print(f"# wanted {wanted}\n# got    {got}")
    bad = [(path, line, form) for path in files for line, form in check(path.read_text())]
    for path, line, form in bad:
        print(f"# {path}:{line}: {ADVICE[form]}")
    print(f"{'not ok' if bad else 'ok'} 2 every assertion of {len(files)} files can fail")
    print("1..2")
    return bool(bad) or wanted != got


sys.exit(main())
