"""The declaration of a system: what a folder adds to the product.

A *system* is a folder of the package, such as `stash`, that stands on the log and the merge. Its
`system.py` declares with one `System` what general code iterates over; `sleeper.systems` lists the
systems. Functions and classes are named by *references*, `"module:name"`, which are loaded on first
use, so that a declaration stays light.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line: a function, or a `typer.Typer` with subcommands.

    In the help it stands after the command `after`.
    """

    name: str
    source: str
    summary: str
    after: str


@dataclass(frozen=True, slots=True)
class System:
    """A system.

    `methods` refers to a class whose methods `sleeper.Instance` has. `names` and `spark_names` are
    what the packages `sleeper` and `sleeper.spark` offer, by name. `spark_sources` are data sources
    of Spark, and `spark_jobs` the functions that a driver of Spark runs, by its argument.
    `local_port` and `aws_port` open what the system keeps beside the tables
    (`sleeper.system_ports`), `enricher` fills fields of rows, and `restore` completes a table of a
    backup.
    """

    name: str
    commands: tuple[Command, ...] = ()
    methods: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    spark_names: Mapping[str, str] = field(default_factory=dict)
    spark_sources: tuple[str, ...] = ()
    spark_jobs: Mapping[str, str] = field(default_factory=dict)
    local_port: str | None = None
    aws_port: str | None = None
    enricher: str | None = None
    restore: str | None = None
