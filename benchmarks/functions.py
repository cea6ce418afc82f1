"""Functions on AWS: how soon one is ready, and a round for a thousand tables."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.settings import Settings
from sleeper.aws.queue import SqsQueue
from sleeper.aws.tables import DynamoTableIndex, TableIndexNames
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName, QueueSettings
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.deployed import TABLE_ID_INDEX, TABLE_NAME_INDEX, TABLE_ONLINE_INDEX
from sleeper.tables import TableRef, new_table_id
from sleeper.workers.schedule import fan_out_tables
from tests.handlers.fresh_process import EVENT_OF, measure_start
from tests.servers.dynoxide import dynoxide
from tests.servers.ministack import ministack
from tests.servers.sqs import make_queue

_TABLES = 1_000
_OPERATION = QueueName.GARBAGE_COLLECTION


def measure(settings: Settings) -> Result:
    tables = settings.rows or _TABLES
    folder = settings.folder / "functions"
    shutil.rmtree(folder, ignore_errors=True)
    create_local_instance(folder / "instance", "benchmark")
    ready: list[float] = []
    for _ in range(settings.repeats):
        starts = [measure_start(name, folder / "instance") for name in EVENT_OF]
        ready.append(max(start["cpu"] for start in starts))
    task = Task(__name__, "ours", {"folder": str(folder), "tables": tables})
    rounds = [run.seconds for run in run_by_turns({"ours": task}, settings.repeats)["ours"]]
    figures = (
        figure("ready, the slowest function", ready, "s", Aim(1, is_most=True)),
        figure(f"a round for {tables:,} tables", rounds, "s", Aim(60, is_most=True)),
    )
    work = (
        f"Each of {len(EVENT_OF)} functions of the control plane in a fresh process: import,"
        " clients of four services, the instance opened, its first event; processor time. Then"
        f" the id of each of {tables:,} tables to an operation's FIFO queue: the table index on a"
        " DynamoDB server (dynoxide), SQS an emulator (ministack), both on the same machine."
    )
    return Result("functions", work, figures)


def ours(watch: Watch, folder: str, tables: int) -> dict[str, Any]:
    with _instance(Path(folder)) as instance:
        for number in range(tables):
            instance.tables.index.create(TableRef(new_table_id(), f"table{number}"))
        with watch:
            message = fan_out_tables(instance, _OPERATION)
        counts = instance.jobs.queue(_OPERATION).counts()
        check(
            message == counts.visible == tables,
            f"{message} of {tables} sent, {counts} on the queue",
        )
    return {}


@contextmanager
def _instance(folder: Path) -> Iterator[Instance]:
    local = open_local_instance(folder / "instance")
    with dynoxide(folder) as server, ministack(folder) as others:
        tables = server.make_tables()
        names = (TABLE_NAME_INDEX, TABLE_ID_INDEX, TABLE_ONLINE_INDEX)
        index = DynamoTableIndex(tables.client, TableIndexNames(*map(tables.name, names)))
        sqs = others.client("sqs")
        urls = make_queue(sqs, "benchmark", QueueSettings(fifo=True))
        queue = SqsQueue(sqs, _OPERATION.value, urls.url, urls.dead_letters_url)
        yield replace(
            local,
            tables=replace(local.tables, index=index),
            jobs=replace(local.jobs, queue=lambda _: queue),
        )
    local.close()
