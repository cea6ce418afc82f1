"""The help of every command has valid examples."""

import itertools
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from sleeper.cli.main import app

_ROOT = typer.main.get_command(app)


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name in command.commands:
        yield from _commands(command.get_command(None, name), (*path, name))


COMMANDS = dict(_commands(_ROOT))


def _examples(help_text: str) -> list[str]:
    text = re.sub(r"\\\n\s*", " ", help_text)
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def _arguments(example: str) -> list[str]:
    """Returns the arguments of `sleeper` in the example, up to a pipe or a redirection."""
    words = shlex.split(example.replace("|", " | "))
    start = words.index("sleeper") + 1
    return list(itertools.takewhile(lambda word: word not in ("|", ">"), words[start:]))


def _parse(arguments: list[str]) -> tuple[str, ...]:
    """Parses the arguments and returns the command's path."""
    command: Any = _ROOT
    context: Any = None
    path: tuple[str, ...] = ()
    while hasattr(command, "commands"):
        context = command.make_context(path[-1] if path else "sleeper", arguments, parent=context)
        arguments = [*context._protected_args, *context.args]
        name = arguments.pop(0)
        command, path = command.get_command(context, name), (*path, name)
    command.make_context(path[-1], arguments, parent=context)
    return path


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_of_each_command_has_a_valid_example(path: tuple[str, ...]) -> None:
    examples = [e for e in _examples(COMMANDS[path].help or "") if "sleeper" in shlex.split(e)]
    assert examples, f"no example in the help of {' '.join(path)}"
    for example in examples:
        assert _parse(_arguments(example)) == path, example


def test_invalid_examples_fail_to_parse() -> None:
    assert _parse(["table", "list"]) == ("table", "list")
    for wrong in (["table", "lists"], ["gc"], ["gc", "t", "--all"], ["query", "t", "--limit", "x"]):
        with pytest.raises(Exception, match=r"."):
            _parse(wrong)
