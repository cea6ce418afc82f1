"""`sleeper adapter`: named pairs of a source and a sink, which run repeatedly."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.adapters.source_text import NewAdapter
from sleeper.cli.arguments import (
    LIMIT_MAX,
    SparkConf,
    SparkMaster,
    complete_names,
    needs_spark,
    refuse_spark_options,
    spark_arguments,
    use_instance,
)
from sleeper.cli.ingest import suggest_retry, summarize_load
from sleeper.cli.options import options_of
from sleeper.cli.output import instance_command, listing_command, note, show_ingest, show_stages
from sleeper.jobs.process import interrupted_by_sigterm

if TYPE_CHECKING:
    from sleeper.adapters.definition import Adapter
    from sleeper.adapters.run import AdapterRun, OpenSpark, SparkDatabases
    from sleeper.bulk_import.run import OnStage
    from sleeper.instance import Instance
    from sleeper.reports.output import Listing

adapters = typer.Typer(
    help="Create, run and schedule adapters, which load databases, files and tables.",
    no_args_is_help=True,
)


def complete_adapter(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the matching adapters of a local instance."""

    def read_names(instance: "Instance") -> Iterable[str]:
        from sleeper.adapters.store import AdapterStore

        return AdapterStore(instance.storage.root).names()

    return complete_names(context, incomplete, read_names)


AdapterName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the adapter.", autocompletion=complete_adapter),
]


@adapters.command("create")
@instance_command
@options_of(NewAdapter)
def create(instance: "Instance", new: NewAdapter) -> None:
    """Create an adapter, after checking that its source fits the sink.

    Each run reads all rows of the source. It replaces the rows of a snapshot table (created with
    --set sleeper.table.type=snapshot), and adds rows to any other table.

    \b
    Examples:
      sleeper adapter create orders --source postgresql://reader@db.example/shop \\
        --table public.orders --password env:SHOP_PASSWORD --sink orders
      sleeper adapter create prices --source 'exports/*.csv' --sink prices
      sleeper adapter create copy --source table:orders@17 --sink orders_copy
    """
    from sleeper.adapters.service import create_adapter

    with _local_spark(instance) as spark:
        made = create_adapter(instance, new, spark)
    note(f"created adapter {new.name}: {made.source.describe()} -> {new.sink}")


@adapters.command("run")
def run(
    context: typer.Context,
    name: AdapterName,
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run-id",
            metavar="ID",
            help="Id of the run. A committed run that is repeated changes nothing. Default: new.",
        ),
    ] = None,
    submit: Annotated[
        bool,
        typer.Option(
            "--submit",
            help="Send the run to the queue. `sleeper run` runs it, or a task of an AWS instance.",
        ),
    ] = False,
    master: SparkMaster = None,
    conf: SparkConf = None,
) -> None:
    """Load all rows of an adapter's source into its sink.

    All rows are committed in one transaction, or none.

    \b
    Examples:
      sleeper adapter run orders
      sleeper adapter run orders --run-id 2026-11-23
      sleeper adapter run orders --submit
      sleeper adapter run orders --master spark://10.0.0.1:7077 --conf spark.cores.max=8
    """
    from sleeper.jobs.event import new_run_id

    run_id = new_run_id() if run_id is None else run_id
    with use_instance(context) as instance:
        if submit:
            refuse_spark_options("--submit", master, conf)
            from sleeper.adapters.message import submit_run

            note(f"submitted run {submit_run(instance, name, run_id)} of adapter {name}")
            return
        from sleeper.adapters.store import AdapterStore

        # Fails before the engine takes a second.
        adapter = AdapterStore(instance.storage.root).get(name)
        start = time.monotonic()
        arguments = ["adapter", "run", name, *spark_arguments(master, conf)]
        with suggest_retry(context, arguments, run_id, "--run-id", "run"):
            result = _run_here(instance, adapter, run_id, master, conf or ())
    if result.note:
        note(f"note: {result.note}")
    note(summarize_load(result, result.sink, time.monotonic() - start))


def _run_here(
    instance: "Instance", adapter: "Adapter", run_id: str, master: str | None, conf: Sequence[str]
) -> "AdapterRun":
    """Runs an adapter in this process, and shows its progress."""
    from sleeper.adapters.run import run_adapter

    with interrupted_by_sigterm(), ExitStack() as stack:
        progress, on_stage = None, None
        if adapter.needs_spark:
            on_stage = stack.enter_context(show_stages(f"adapter {adapter.name}"))
        else:
            progress = stack.enter_context(show_ingest(f"adapter {adapter.name}"))
        spark = stack.enter_context(_local_spark(instance, on_stage, master, conf))
        return run_adapter(instance, adapter.name, run_id, progress, spark)


@contextmanager
def _local_spark(
    instance: "Instance",
    on_stage: "OnStage | None" = None,
    master: str | None = None,
    conf: Sequence[str] = (),
) -> "Iterator[OpenSpark]":
    """Yields a function that starts a session of Spark."""
    with ExitStack() as stack:

        def start() -> "SparkDatabases":
            with needs_spark("the database is read with Spark, which"):
                from sleeper.adapters.spark.database_load import local_databases
                from sleeper.spark.settings import choose_settings
            settings = choose_settings(instance.properties(), master, conf)
            return stack.enter_context(local_databases(instance, settings, on_stage))()

        yield start


@adapters.command("list")
@listing_command
def list_all(instance: "Instance") -> "Iterable[Listing]":
    """List the adapters, each with its last run.

    \b
    Examples:
      sleeper adapter list
      sleeper adapter list --output json
    """
    from sleeper.adapters.report import list_adapters

    return [list_adapters(instance)]


@adapters.command("show")
@listing_command
def show(
    instance: "Instance",
    name: AdapterName,
    limit: Annotated[
        int, typer.Option("--limit", min=0, max=LIMIT_MAX, help="Number of runs to list.")
    ] = 10,
) -> "Iterable[Listing]":
    """Show an adapter and its latest runs.

    The runs have their rows, bytes, seconds, version, source, and the reason of a failure.

    \b
    Examples:
      sleeper adapter show orders
      sleeper adapter show orders --output json | jq 'select(.report == "adapter-runs")'
    """
    from sleeper.adapters.report import show_adapter

    return show_adapter(instance, name, limit)


@adapters.command("schedule")
@instance_command
def schedule(
    instance: "Instance",
    name: AdapterName,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE",
            help="A duration such as 15m, 1h or 1d, 'rate(1 hour)', a cron expression of Amazon "
            "EventBridge in UTC such as 'cron(0 6 * * ? *)', or none.",
        ),
    ],
) -> None:
    """Run an adapter on a schedule.

    `sleeper run` starts the runs, or AdapterStack on AWS. The first run of a duration or rate is
    one period from now. A run waits until the previous one has ended. After downtime, one run
    catches up.

    \b
    Examples:
      sleeper adapter schedule orders 15m
      sleeper adapter schedule orders 'cron(30 5 ? * MON-FRI *)'
      sleeper adapter schedule orders none
    """
    from sleeper.adapters.due import schedule_adapter
    from sleeper.clock import iso_time
    from sleeper.schedule import next_due_ms

    adapter = schedule_adapter(instance, name, None if expression == "none" else expression)
    if adapter.schedule is None:
        note(f"removed the schedule of adapter {name}")
        return
    due_ms = next_due_ms(adapter.schedule, instance.clock())
    following = "" if due_ms is None else f", next at {iso_time(due_ms)}"
    note(f"adapter {name} runs on schedule {adapter.schedule.expression}{following}")


@adapters.command("delete")
@instance_command
def delete(instance: "Instance", name: AdapterName) -> None:
    """Delete an adapter. Its sink keeps all rows, and the job tracker keeps its runs.

    \b
    Example:
      sleeper adapter delete orders
    """
    from sleeper.adapters.store import AdapterStore

    AdapterStore(instance.storage.root).delete(name)
    note(f"deleted adapter {name}")
