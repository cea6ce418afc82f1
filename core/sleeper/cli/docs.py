"""Generates `docs/commands.md` from the commands' own help.

`python -m sleeper.cli.docs` writes the page to standard output.
"""

import sys
from collections.abc import Iterator
from typing import Any

import typer.main

from sleeper.cli.main import app

_WIDTH = 96

_HEAD = """# Commands

This page is generated: `python -m sleeper.cli.docs > docs/commands.md`. Every command says
the same with `--help`.

Results go to standard output; progress, notes and errors go to standard error. With
`--output json` a report is one JSON object a row, and nothing else is on standard output.

| exit status | |
|---|---|
| 0 | done; also when `--rejects` set rows aside, or when the reader of a pipe had enough |
| 1 | failed, or refused: the reason is one line on standard error |
| 2 | wrong usage: the command line cannot be parsed |
| 130 | interrupted |

`SLEEPER_DEBUG=1` shows where an error came from. `sleeper --install-completion` lets your shell
complete commands, options, names of tables and of properties.
"""


def commands_page() -> str:
    """The whole page, Markdown."""
    return "\n".join([_HEAD, *_sections(typer.main.get_command(app), "sleeper", None)])


def _sections(command: Any, name: str, parent: Any) -> Iterator[str]:
    widths = {"terminal_width": _WIDTH, "max_content_width": _WIDTH}
    settings = {**command.context_settings, **widths}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    title = context.command_path
    yield f"{'##' if parent is None or parent.parent is None else '###'} {title}\n"
    yield f"```\n{command.get_help(context).rstrip()}\n```\n"
    if hasattr(command, "list_commands"):
        for name_below in command.list_commands(context):
            yield from _sections(command.get_command(context, name_below), name_below, context)


if __name__ == "__main__":
    sys.stdout.write(commands_page())
