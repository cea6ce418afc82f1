"""The `sleeper` command."""

import atexit
import gc
import io
import os
import sys
import threading
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NoReturn

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from sleeper import INSTANCE_VARIABLE, READ_ONLY_VARIABLE, UPGRADE_VARIABLE, __version__
from sleeper.cli.conversion import convert_directly
from sleeper.cli.instance_option import accept_instance
from sleeper.cli.output import Commands
from sleeper.cli.startup import postpone_pandas
from sleeper.storage.descriptors import raise_descriptor_limit
from sleeper.system import Command
from sleeper.systems import load, systems


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a command is: a function or a group in a module of this package."""

    module: str
    name: str
    summary: str

    @property
    def source(self) -> str:
        return f"sleeper.cli.{self.module}:{self.name}"


_COLLECTED_OBJECTS = 20_000
# Those of a first use come first, as in the help.
_GENERAL = {
    "instance": _Source("instance", "commands", "Create and configure instances."),
    "table": _Source("table", "commands", "Create, inspect, change and delete tables."),
    "ingest": _Source("ingest", "ingest", "Add the rows of files to a table."),
    "query": _Source("query", "query", "Print rows of a table by key, range or region."),
    "sql": _Source("query", "sql", "Run an SQL query and print its rows."),
    "run": _Source("run", "run", "Run the background work of a local instance."),
    "report": _Source(
        "report", "report", "Report on tables, files, jobs, tasks, queues and costs."
    ),
    "status": _Source(
        "report", "status", "Show everything that is overdue, failing, lagging or dead."
    ),
    "bulk-import": _Source("bulk", "bulk_import", "Add many or large files to a table with Spark."),
    "bulk-export": _Source(
        "bulk", "bulk_export", "Export a table as Parquet files and print their folder."
    ),
    "serve": _Source(
        "run", "serve", "Serve queries and changes over HTTP, and queries over WebSocket at /live."
    ),
    "delete": _Source("delete", "delete", "Delete rows of a table, in one transaction."),
    "undo": _Source(
        "versions", "undo", "Take back what one ingest or import added, in one transaction."
    ),
    "changes": _Source("changes", "changes", "Print what each transaction changed, in order."),
    "purge": _Source(
        "purge", "purge", "Remove deleted rows from the storage and report what is gone."
    ),
    "compact": _Source(
        "maintenance", "compact", "Create the compaction jobs of a table and queue them."
    ),
    "split": _Source(
        "maintenance", "split", "Split the leaves of a table that exceed its threshold."
    ),
    "split-points": _Source(
        "split_points", "commands", "Estimate split points of tables from files."
    ),
    "gc": _Source("maintenance", "gc", "Delete files of a table that no readable version needs."),
    "backup": _Source(
        "instance",
        "backup",
        "Back up the tables of an instance in use, each at its newest version.",
    ),
    "preflight": _Source(
        "preflight", "preflight", "Check an account, this machine and a folder before a deployment."
    ),
    "pause": _Source("instance", "pause", "Pause the background schedules of an AWS instance."),
    "resume": _Source("instance", "resume", "Resume the background schedules of an AWS instance."),
    "queries": _Source("query", "queries", "Queue queries and show their status."),
    "code": _Source("code", "code", "Add, list and remove wheels with user code."),
    "dead-letters": _Source(
        "maintenance", "dead_letters", "List, redrive and delete dead letters."
    ),
    "hold": _Source("holds", "holds", "List and release holds on table versions."),
    "follower": _Source(
        "holds", "followers", "Create, list and delete followers of a table's log."
    ),
    "snapshot": _Source(
        "maintenance",
        "snapshots",
        "List and expire versions of snapshot tables; take state snapshots of any table.",
    ),
}


def _list_commands() -> dict[str, _Source | Command]:
    """Returns all commands by name, in the order of the help."""
    commands: dict[str, _Source | Command] = dict(_GENERAL)
    for command in (each for system in systems() for each in system.commands):
        names = list(commands)
        after = names.index(command.after) + 1
        later = {name: commands.pop(name) for name in names[after:]}
        commands |= {command.name: command, **later}
    return commands


_COMMANDS = _list_commands()


class _LazyCommands(Commands):
    """The root command. It imports a command when it is used, and none for the help."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, source in _COMMANDS.items():
            self.add_command(TyperCommand(name, help=source.summary))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        source = _COMMANDS.get(cmd_name)
        return super().get_command(ctx, cmd_name) if source is None else _load(cmd_name, source)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        TyperGroup(commands=dict(self.commands)).format_commands(ctx, formatter)


@cache
def _load(name: str, source: _Source | Command) -> Any:
    target = load(source.source)
    only = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(target, typer.Typer):
        only.add_typer(target, name=name)
    else:
        only.command(name)(target)
    command = typer.main.get_group(only).commands[name]
    accept_instance(command)
    return command


convert_directly()
app = typer.Typer(
    cls=_LazyCommands,
    name="sleeper",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"sleeper {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    where: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="WHERE",
            envvar=INSTANCE_VARIABLE,
            help="Folder of the instance, or aws:INSTANCE_ID. Every command accepts it too.",
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only",
            envvar=READ_ONLY_VARIABLE,
            help="Change nothing in the folder of the instance, and refuse changes.",
        ),
    ] = False,
    upgrade: Annotated[
        bool,
        typer.Option(
            "--upgrade",
            envvar=UPGRADE_VARIABLE,
            help="Convert the tables' states of a folder of an older version, and keep copies.",
        ),
    ] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Sleeper, a serverless record store for large tables of keyed rows.

    Prints results to standard output, and progress, notes and errors to standard error. The
    exit status is 0 for success, 1 for a failure and 2 for wrong usage. SLEEPER_DEBUG=1 prints
    the traceback of an error.
    """
    context.obj = where
    if read_only:
        # Child processes open the instance too.
        os.environ[READ_ONLY_VARIABLE] = "1"
    if upgrade:
        os.environ[UPGRADE_VARIABLE] = "1"


def main() -> None:
    """Runs the command line."""
    # Sleeper has no linear algebra, for which NumPy would start threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports create many objects that stay, which the collector would visit again and again.
    gc.set_threshold(_COLLECTED_OBJECTS)
    postpone_pandas()
    raise_descriptor_limit()
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The terminal's encoding may lack characters of tables and bars.
        sys.stdout.reconfigure(errors="replace")
    try:
        app(prog_name="sleeper")
    except SystemExit as end:
        if isinstance(end.code, int | None):
            _end_process(end.code or 0)
        raise


def _open_closed_streams() -> None:
    """Opens the null device for standard streams that the caller closed.

    Otherwise data files would get their numbers, and native libraries write messages to them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number, which is that of the stream.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _end_process(status: int) -> NoReturn:
    """Ends the process as the interpreter does, but without its finalization.

    A thread of the engine that still ends a cancelled plan would abort the process then, and to
    free all objects takes longer than some commands.
    """
    threading._shutdown()  # type: ignore[attr-defined] # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            status = status or 1
    os._exit(status)
