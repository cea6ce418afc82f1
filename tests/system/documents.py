"""Runs the examples of a document and compares their output with the page.

Two kinds of fenced block are run, in the order of the page: `console`, in which a line
that begins with `$ ` is a command and the lines after it are what it says; and `python`,
whose output is the block `text` that follows it at once, if there is one. Blocks of other
kinds are not run. Where no output is shown, none is compared.

In the output, `...` stands for anything within a line, and alone on a line for any number
of lines. Times, rates, sizes and ids may differ and are compared by their form only; so are
all numbers and what stands in quotes in a block `console sampled`, because partitions are
split by a sample of the keys. A command whose output has a line that begins with `error: `
must fail.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from sleeper.cli.main import app
from tests.child_processes import python_path
from tests.servers.process import free_ports

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<\s*'?(\w+)'?")
_NEEDS_A_SHELL = re.compile(r"[|<>;&`$*~]")
_PORT = re.compile(r"--port (\d+)")
_VARYING = (
    # What a run says meanwhile, every ten seconds.
    (re.compile(r"^(idle|.* running, .* waiting)\n", re.MULTILINE), ""),
    # The jobs of a run end in any order.
    (re.compile(r"^\S[^:\n]*: ([\d,]+ rows?|done) in [\d.]+ s\n", re.MULTILINE), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b\d{13}-[0-9a-f]{16}\b"), "<id>"),
    (re.compile(r"\b([0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{16}|[0-9a-f]{12}|[0-9a-f]{8})\b"), "<id>"),
    (re.compile(r"\b[\d,]*\d(\.\d+)? (ms|s|rows/s|bytes|[KMG]?i?B)(?!\w)"), r"<number> \2"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"─+"), "─"),
)
_SAMPLED = re.compile(r'"[^"\n]*"|\b\d[\d,]*\b|█+')


@dataclass(frozen=True, slots=True)
class Example:
    """A command or a piece of Python with its documented output. `line` is its line in the page."""

    line: int
    is_python: bool
    code: str
    expected: str
    is_sampled: bool = False


@dataclass(slots=True)
class Surroundings:
    """Where examples run: a folder, variables, and the names that Python has defined.

    `ports` maps documented ports to those that are used, so that pages can run at once.
    """

    folder: Path
    variables: dict[str, str]
    ports: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)


def examples_in(text: str) -> list[Example]:
    """All examples of a page, in order."""
    results: list[Example] = []
    blocks = list(_FENCE.finditer(text))
    for block, current in pairwise([*blocks, None]):
        line = text.count("\n", 0, block.start()) + 2
        if block[1] == "console":
            results += _commands(block[3], line, block[2] == "sampled")
        elif block[1] == "python":
            follows = current is not None and not text[block.end() : current.start()].strip()
            expected_output = (
                current[3] if current is not None and follows and current[1] == "text" else ""
            )
            results.append(Example(line, True, block[3], expected_output))
    return results


def run_example(example: Example, where: Surroundings) -> str:
    """Returns the example's output. AssertionError if its exit status is not the documented one."""
    code = example.code
    for documented, port in where.ports.items():
        code = code.replace(documented, port)
    if example.is_python:
        return _run_python(code, example.line, where)
    if code.startswith("export "):
        name, _, value = code.removeprefix("export ").partition("=")
        where.variables[name] = value.replace("~", where.variables["HOME"])
        return ""
    status, output = _run_command(code, where)
    should_fail = any(line.startswith("error: ") for line in example.expected.splitlines())
    assert (status != 0) is should_fail, f"`{example.code}` ended with status {status}: {output}"
    return output


def free_ports_for(text: str) -> dict[str, str]:
    """A free port for each one that the page's examples serve on."""
    documented = sorted(set(_PORT.findall(text)))
    return dict(zip(documented, map(str, free_ports(len(documented))), strict=True))


def says_as_shown(expected: str, output: str, is_sampled: bool = False) -> bool:
    """Compares the output with the documented one, except for parts that differ between runs."""
    if not expected.strip():
        return True
    text, result = _plain(expected), _plain(output)
    if is_sampled:
        text, result = _SAMPLED.sub("<sampled>", text), _SAMPLED.sub("<sampled>", result)
    patterns = []
    for line in text.splitlines():
        if line == "...":
            patterns.append(r"(?:[^\n]*\n)*?")
        else:
            patterns.append(re.escape(line).replace(r"\.\.\.", "[^\n]*") + "\n")
    return re.fullmatch("".join(patterns), result) is not None


def variables_of(folder: Path, programs: Path) -> dict[str, str]:
    """An environment in which `sleeper` and `python` are this one, and no instance is named."""
    programs.mkdir()
    _program(programs / "sleeper", f'{_PYTHON} -c "{_MAIN}" "$@"')
    _program(programs / "python", f'{_PYTHON} "$@"')
    remaining = {n: v for n, v in os.environ.items() if not n.startswith("SLEEPER_")}
    return {
        **remaining,
        "HOME": str(folder),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": python_path(ROOT / "core", ROOT),
        "COLUMNS": "100",
    }


_PYTHON = shlex.quote(sys.executable)
_MAIN = "from sleeper.cli.main import main; main()"


def _program(path: Path, command: str) -> None:
    path.write_text(f"#!/bin/sh\nexec {command}\n")
    path.chmod(0o755)


def _commands(block: str, first_line: int, is_sampled: bool) -> Iterator[Example]:
    lines = block.splitlines()
    place = 0
    while place < len(lines):
        start = place
        command = [lines[place].removeprefix("$ ")]
        assert lines[place].startswith("$ "), f"line {first_line + place}: no command before it"
        folder = _HERE_DOCUMENT.search(command[0])
        while command[-1].endswith("\\") or (folder and command[-1] != folder[1]):
            place += 1
            command.append(lines[place].removeprefix("> "))
        place += 1
        output = []
        while place < len(lines) and not lines[place].startswith("$ "):
            output.append(lines[place] + "\n")
            place += 1
        code = "\n".join(command)
        yield Example(first_line + start, False, code, "".join(output), is_sampled)


def _run_python(code: str, line: int, where: Surroundings) -> str:
    output = StringIO()
    compiled = compile("\n" * (line - 1) + code, "<example>", "exec")
    with redirect_stdout(output):
        exec(compiled, where.names)
    return output.getvalue()


def _run_command(command: str, where: Surroundings) -> tuple[int, str]:
    outside_quotes = re.sub(r"'[^']*'|\"[^\"]*\"|\\\n", "", command)
    if command.startswith("sleeper ") and not _NEEDS_A_SHELL.search(outside_quotes):
        return _run_here(shlex.split(command.replace("\\\n", " "))[1:], where.variables)
    process = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=where.folder,
        env=where.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout


def _run_here(arguments: list[str], variables: Mapping[str, str]) -> tuple[int, str]:
    """A command in this process, which saves starting another."""
    result = CliRunner().invoke(app, arguments, env=variables)
    return result.exit_code, result.output


def _plain(text: str) -> str:
    """Returns the text without the parts that differ between runs."""
    for pattern, stand_in in _VARYING:
        text = pattern.sub(stand_in, text)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "".join(line + "\n" for line in lines)
