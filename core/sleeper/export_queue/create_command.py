"""`sleeper export-queue create`."""

from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import complete_table, parse_settings
from sleeper.cli.output import instance_command, note
from sleeper.export_queue.definition import (
    BUCKETS_DEFAULT,
    BUFFER_BYTES_DEFAULT,
    TIMEOUT_SECONDS_DEFAULT,
    TRIES_DEFAULT,
)
from sleeper.export_queue.store import open_export_store

if TYPE_CHECKING:
    from sleeper.instance import Instance

Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="A[,B]",
        help="Key fields of the exports: fields of the table that are never null. With --on "
        "transaction also NAME:TYPE, such as id:LongType.",
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value", metavar="C[,D]", help="Value fields of the exports, as --key. May be null."
    ),
]


@instance_command
def create(
    instance: "Instance",
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue, without ':'.")],
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="Table whose changes are exported.",
            autocompletion=complete_table,
        ),
    ],
    exporter: Annotated[
        str,
        typer.Option(
            "--exporter",
            metavar="EXPORTER",
            help="Receiver: table:OTHER (created if it is missing), "
            "postgres://USER@HOST/DATABASE?table=T, "
            "redis://HOST:6379/0?prefix=P, webhook:URL, kafka://BROKER/TOPIC, sqs:QUEUE, "
            "opensearch:https://HOST:9200/INDEX, python:NAME of a wheel, or null:.",
        ),
    ],
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="transaction|ingest|snapshot|compaction",
            help="Source of exports: transactions in Python that call export, changes of rows, "
            "versions of a snapshot table, or files that compactions wrote.",
        ),
    ] = None,
    key: Keys = None,
    value: Values = None,
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="REFERENCE",
            help="Place from which workers read the receiver's password: env:NAME, file:PATH, or "
            "secret:NAME-OR-ARN in AWS Secrets Manager.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the exporter. Repeatable."),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(
            "--buckets",
            metavar="N",
            help=f"Buckets, each exported by one worker at a time. Default: {BUCKETS_DEFAULT}.",
        ),
    ] = None,
    buffer_bytes: Annotated[
        int | None,
        typer.Option(
            "--buffer-bytes",
            metavar="N",
            help=f"Largest size of a batch of exports. Default: {BUFFER_BYTES_DEFAULT}.",
        ),
    ] = None,
    tries: Annotated[
        int | None,
        typer.Option(
            "--tries",
            metavar="N",
            help="Calls after which exports that the receiver refuses become dead letters. "
            f"Default: {TRIES_DEFAULT}.",
        ),
    ] = None,
    timeout_seconds: Annotated[
        int | None,
        typer.Option(
            "--timeout-seconds",
            metavar="N",
            help=f"Longest duration of a call. Default: {TIMEOUT_SECONDS_DEFAULT}.",
        ),
    ] = None,
    existing_rows: Annotated[
        bool, typer.Option("--existing-rows", help="Export the rows that the table has now, too.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Give an existing queue another exporter and options."),
    ] = False,
) -> None:
    """Create an export queue on a table.

    An export is a key with values and a sequence number, that of its transaction. It leaves at
    least once if the transaction is committed, and never otherwise. `sleeper run` exports, or the
    functions of an AWS instance. The source, keys, values and number of buckets never change.

    \b
    Examples:
      sleeper export-queue create copy --table flights --on ingest --key tailnum --value dest \\
        --exporter table:destinations
      sleeper export-queue create shop --table orders --on ingest --key id --value state,total \\
        --exporter 'postgres://writer@db.example/shop?table=orders' --password env:SHOP_PASSWORD
      sleeper export-queue create index --table counts --on transaction --key word \\
        --value old:LongType,new:LongType --exporter python:index
    """
    from sleeper.export_queue.definition import ExporterSettings
    from sleeper.export_queue.parsing import QueueOptions, split_names
    from sleeper.export_queue.service import create_queue

    is_known = any(each.name == name for each in open_export_store(instance).list())
    queue = create_queue(
        instance,
        name,
        table,
        on,
        [field for text in key or () for field in split_names(text)],
        [field for text in value or () for field in split_names(text)],
        ExporterSettings(exporter, password, parse_settings(option or ())),
        QueueOptions(
            buckets=buckets,
            buffer_bytes=buffer_bytes,
            tries=tries,
            timeout_seconds=timeout_seconds,
            existing_rows=existing_rows,
        ),
        replace,
    )
    done = "changed" if is_known else "created"
    note(f"{done} export queue {name}: {table} on {queue.source.value} -> {queue.exporter.shown}")
