"""Generates `docs/commands.md` from the help of the commands.

`python -m sleeper.cli.docs` writes the page to standard output.
"""

import sys
from collections.abc import Iterator
from typing import Any

import typer.main

from sleeper.cli.main import app

_WIDTH = 96

_HEAD = """# Commands

This page has the `--help` text of every command. Generate it with
`python -m sleeper.cli.docs > docs/commands.md`.

Commands print results to standard output, and progress, notes and errors to standard error.
With `--output json`, standard output has one JSON object per row and nothing else.

| exit status | meaning |
|---|---|
| 0 | success, including rows rejected with `--rejects` and a pipe closed by its reader |
| 1 | failure; standard error has the reason in one line |
| 2 | wrong usage: the command line cannot be parsed |
| 130 | interrupted |

`SLEEPER_DEBUG=1` prints the traceback of an error. `sleeper --install-completion` installs
completion of commands, options, tables and properties for the shell.
"""


def generate_page() -> str:
    """Returns the page as Markdown."""
    return "\n".join([_HEAD, *_generate_sections(typer.main.get_command(app), "sleeper", None)])


def _generate_sections(command: Any, name: str, parent: Any) -> Iterator[str]:
    widths = {"terminal_width": _WIDTH, "max_content_width": _WIDTH}
    settings = {**command.context_settings, **widths}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    title = context.command_path
    yield f"{'##' if parent is None or parent.parent is None else '###'} {title}\n"
    yield f"```\n{command.get_help(context).rstrip()}\n```\n"
    if hasattr(command, "list_commands"):
        for child in command.list_commands(context):
            yield from _generate_sections(command.get_command(context, child), child, context)


if __name__ == "__main__":
    sys.stdout.write(generate_page())
