"""The declaration of a system: what a folder adds to the product.

A *system* is a folder of the package that stands on the log and the merge. Its
`system.py` declares with one `System` what general code iterates over; `sleeper.systems` lists the
systems. Functions and classes are named by *references*, `"module:name"`, which are loaded on first
use. Named tuples, because every command line makes these classes: dataclasses take three times as
long.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_NONE: Mapping[str, str] = MappingProxyType({})


class Command(NamedTuple):
    """A command of the command line: a function, or a `typer.Typer` with subcommands.

    In the help it stands after the command `after`.
    """

    name: str
    source: str
    summary: str
    after: str


class LocalJobs(NamedTuple):
    """The jobs of a queue that the workers of a local instance poll, the lowest `priority` first.

    Reports on runs call them `noun` and `plural`.
    """

    noun: str
    plural: str
    priority: int = 10


class Tasks(NamedTuple):
    """The tasks on AWS that run the jobs of a queue. Their kind is the name of the queue.

    `count_max` refers to the property with the maximum number of concurrent tasks. `subnets` and
    `security_groups` refer to the properties of the network, if it is not that of all tasks.
    """

    count_max: str
    subnets: str | None = None
    security_groups: str | None = None


class Queue(NamedTuple):
    """A queue of an instance.

    `name` is its name in code and in reports, `deployed_name` its name on AWS after the prefix of
    the instance. `stem` begins the names of the properties with its addresses, and `content`
    describes its messages there. `retry_policy` and `visibility` refer to the policy of failed
    messages and to the property with the visibility timeout.

    `id_member` is the member of a message with the id of its job, which is by default that of the
    message. `run` refers to the function that runs the job of a message, if a worker does. It takes
    the instance, the message and the id of the task, and returns the numbers of rows read and
    written.
    """

    name: str
    deployed_name: str
    stem: str
    content: str
    retry_policy: str = "sleeper.runs.retry_policy:SOON"
    visibility: str = "sleeper.properties.instance:QUEUE_VISIBILITY_SECONDS"
    id_member: str | None = None
    run: str | None = None
    local: LocalJobs | None = None
    tasks: Tasks | None = None


class Operation(NamedTuple):
    """An operation that `sleeper run` repeats.

    `run` refers to a function that takes the instance and the time up to which work is due, None
    for the present. It returns whether it did anything, and its problems as text.
    """

    run: str
    period_seconds: float = 5.0


class Companion(NamedTuple):
    """A process that `sleeper run` keeps beside its workers while it is needed.

    It runs the module, with the folder of the instance as its argument. `watch` refers to a
    function of the instance that returns a `sleeper.workers.companion.Watch`.
    """

    module: str
    watch: str
    period_seconds: float = 1.0


class Report(NamedTuple):
    """A report of `sleeper report`, which stands after the report `after`.

    `gather` refers to a function of the instance, the id of a table or None, and the largest number
    of rows. It returns a listing.
    """

    name: str
    gather: str
    after: str


class Stack(NamedTuple):
    """A nested stack of a deployment on AWS, a `stacks.system_stack.SystemStack`.

    `sleeper.optional.stacks` chooses it by its `option`, which its texts list after `after`. A
    stack without an option is deployed with any other one of its system. `services` are those of
    AWS that not every region has, by their names in boto3. `image` is a function of the properties
    that returns its container image (`sleeper.properties.images.NamedImage`), besides those of
    functions and tasks.
    """

    name: str
    source: str
    option: str | None = None
    after: str = ""
    is_default: bool = False
    services: tuple[str, ...] = ()
    image: str | None = None


class System(NamedTuple):
    """A system. Texts are references, unless they are said to be something else.

    What it adds for users:

    - `commands`; `methods`: a class whose methods `sleeper.Instance` has; `names` and
      `spark_names`: what the packages `sleeper` and `sleeper.spark` offer.
    - `reports`; `table_listings`: a function of the instance and the id of a table that returns
      the listings of the report on that table; `table_lag`: one that returns how many transactions
      of the table it has to process, None if it processes none; `problems`: a function of the
      instance that finds what is overdue, failing, lagging or dead (`sleeper.reports.status`).
    - `properties`: the module, not a reference, that declares its properties, tables and buckets.

    What runs for it:

    - `queues`; `operations` and `companions` of `sleeper run`; `routes`: a function of the
      instance, and of whether the server accepts changes, that returns routes of the HTTP API;
      `spark_sources`: data sources of Spark; `spark_jobs`: functions that a driver of Spark runs,
      by its argument.
    - `stacks`: its parts of an instance on AWS, in the order of their creation.

    What it keeps:

    - `local_port` and `aws_port`: functions that open what it keeps beside the tables
      (`sleeper.system_ports`); `definitions`: the folder of its JSON documents, which backups have.
    - `transactions`: classes of transactions of its own; `follower_prefix`: the beginning of the
      names of followers that keep what they have not read, and `follower_kinds`: a function of a
      state and the rest of the name that returns the kinds of transactions that one reads, if
      they are not the changes of rows.

    Where the core asks it:

    - `transaction_part`: a class, `sleeper.api.transaction.TransactionPart`.
    - `enricher`: a class that fills fields of ingested rows; `restore`: a function that completes
      a table of a backup; `check_deletion`: one that refuses the deletion of a table that the
      system needs; `code_users`: one that names what uses a name of user code; `purge`: one that
      removes what the system keeps of a table's deleted rows, and returns the objects
      (`sleeper.purging.report.PurgedObject`).
    """

    name: str
    commands: tuple[Command, ...] = ()
    properties: str | None = None
    methods: str | None = None
    names: Mapping[str, str] = _NONE
    spark_names: Mapping[str, str] = _NONE
    spark_sources: tuple[str, ...] = ()
    spark_jobs: Mapping[str, str] = _NONE
    local_port: str | None = None
    aws_port: str | None = None
    enricher: str | None = None
    restore: str | None = None
    definitions: str | None = None
    transactions: tuple[str, ...] = ()
    follower_prefix: str | None = None
    follower_kinds: str | None = None
    transaction_part: str | None = None
    check_deletion: str | None = None
    code_users: str | None = None
    purge: str | None = None
    queues: tuple[Queue, ...] = ()
    operations: tuple[Operation, ...] = ()
    companions: tuple[Companion, ...] = ()
    routes: str | None = None
    reports: tuple[Report, ...] = ()
    table_listings: str | None = None
    table_lag: str | None = None
    problems: str | None = None
    stacks: tuple[Stack, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """The names by which `sleeper.optional.stacks` chooses its stacks."""
        return tuple(stack.option for stack in self.stacks if stack.option is not None)
