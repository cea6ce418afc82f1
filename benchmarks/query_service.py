"""Queries by message: one over thousands of leaves, and one key at a time, on an AWS instance."""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar

import pyarrow as pa

from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.result import Aim, Figure, Result, check, figure
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.files import DataFile, new_data_path
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.query_tracker import QueryState
from sleeper.jobs.queue import Message, QueueName
from sleeper.opening import open_instance
from sleeper.query.messages.leaf import leaf_query_body
from sleeper.query.request import Query, make_key_regions
from sleeper.query.service import open_query, read_schema
from sleeper.query_service.run import run_leaf_query_message
from sleeper.query_service.service import plan_query_message, run_query_message
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.workers.lambda_function import limit_garbage_collection
from tests.servers.aws_instance import AwsServers, aws_instance
from tests.servers.dynoxide import dynoxide
from tests.servers.ministack import ministack
from tests.servers.seaweedfs import seaweedfs

R = TypeVar("R")

_LEAVES = 10_000
_ROWS = 100_000
_POINTS = 200
_CONCURRENT_QUERIES = 100
_CONCURRENT_POINTS = 2_000
_SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)


def measure(settings: Settings) -> Result:
    leaves = settings.rows or _LEAVES
    folder = settings.folder / "query-service"
    tasks = {
        "fan out": Task(__name__, "fan_out", {"folder": str(folder), "leaves": leaves}),
        "points": Task(__name__, "points", {"folder": str(folder)}),
    }
    runs = run_by_turns(tasks, settings.repeats)

    def make_figure(name: str, key: str, what: str, unit: str, aim: Aim | None = None) -> Figure:
        return figure(what, [run.answer[key] for run in runs[name]], unit, aim)

    figures = (
        make_figure(
            "fan out", "plan", f"a query over {leaves:,} leaves planned", "s", Aim(1, is_most=True)
        ),
        make_figure("fan out", "plan_cpu", "the same, processor time", "s", Aim(1, is_most=True)),
        make_figure("fan out", "record", "its subqueries recorded", "s"),
        make_figure("fan out", "send", "its subqueries sent", "s", Aim(10, is_most=True)),
        figure("peak of the planner", peaks_mib(runs["fan out"]), "MiB"),
        make_figure(
            "points", "leaf_p50", "one key, warm leaf function, p50", "ms", Aim(50, is_most=True)
        ),
        make_figure("points", "leaf_p99", "one key, warm leaf function, p99", "ms"),
        make_figure("points", "whole_p50", "one key, planned and run where it landed, p50", "ms"),
        make_figure("points", "whole_p99", "one key, planned and run where it landed, p99", "ms"),
        make_figure(
            "points", "many_p50", f"one key, {_CONCURRENT_QUERIES} at once in a process, p50", "ms"
        ),
        make_figure(
            "points",
            "many_p99",
            f"one key, {_CONCURRENT_QUERIES} at once in a process, p99",
            "ms",
            Aim(150, is_most=True),
        ),
        make_figure(
            "points",
            "many_rate",
            f"keys, {_CONCURRENT_QUERIES} at once in a process",
            "/s",
            Aim(1_500),
        ),
    )
    work = (
        "An AWS instance over servers on the same machine: S3 is SeaweedFS, DynamoDB dynoxide, SQS"
        f" ministack. A query over a table of {leaves:,} leaves of one file each: planned, each"
        f" subquery recorded in the tracker, then sent. Keys of a table of {_ROWS:,} rows over"
        " four leaves, one after another through the functions' workflow: message parsed, tracker"
        " written, newest version read, rows written to the results' bucket; and without messages"
        f" by {_CONCURRENT_QUERIES} threads."
    )
    return Result("query-service", work, figures)


def fan_out(watch: Watch, folder: str, leaves: int) -> dict[str, Any]:
    with _instance(Path(folder)) as instance:
        create_table(instance, "wide", _SCHEMA, split_points=range(1, leaves))
        _add_a_file_to_each_leaf(instance)
        seconds_taken: dict[str, float] = {}
        tracker = instance.queries.tracker()
        records = _Timed(tracker, {"plan": "record"}, seconds_taken)
        queue = _Timed(
            instance.jobs.queue(QueueName.LEAF_QUERY), {"send_all": "send"}, seconds_taken
        )
        timed_instance: Any = replace(
            instance,
            jobs=replace(instance.jobs, queue=lambda _: queue),
            queries=replace(instance.queries, tracker=lambda: records),
        )
        with watch:
            check(
                plan_query_message(timed_instance, _message("wide", "q", [{}])) is None,
                "it ran here",
            )
        subqueries = tracker.subqueries("q")
        check(len(subqueries) == leaves, f"{len(subqueries)} subqueries are recorded")
        message = instance.jobs.queue(QueueName.LEAF_QUERY).counts().visible
        check(message == leaves, f"{message} subqueries were sent")
    # With the pin in the tracker and the hold in the log.
    return {
        **seconds_taken,
        "plan": watch.seconds - seconds_taken["record"] - seconds_taken["send"],
        "plan_cpu": watch.cpu_seconds - seconds_taken["record_cpu"] - seconds_taken["send_cpu"],
    }


def points(watch: Watch, folder: str) -> dict[str, Any]:
    with _instance(Path(folder)) as instance:
        cuts = [_ROWS // 4 * part for part in (1, 2, 3)]
        create_table(instance, "t", _SCHEMA, split_points=cuts)
        keys = pa.array(range(_ROWS), pa.int64())
        rows = pa.table({"k": keys, "v": keys.cast(pa.string())})
        ingest_rows(instance, "t", rows.to_batches(10_000))
        choice = random.Random(7)
        messages = [_message("t", f"q{n}", [_key(choice)]) for n in range(2 * _POINTS + 40)]
        for message in messages[:40]:
            run_query_message(instance, message)
        with watch:
            full_result = [_ms(lambda m=m: run_query_message(instance, m)) for m in messages[40::2]]  # type: ignore[misc]
            leaf = [_leaf_ms(instance, message) for message in messages[41::2]]
            many, rate = _query_concurrently(instance, choice)
        states = {query.state for query in instance.queries.tracker().recent(_POINTS)}
        check(states == {QueryState.COMPLETED}, f"queries are {states}")
    return {
        **_percentiles("whole", full_result),
        **_percentiles("leaf", leaf),
        **_percentiles("many", many),
        "many_rate": rate,
    }


def _leaf_ms(instance: Instance, message: Message) -> float:
    """Of the leaf's function alone."""
    subquery = plan_query_message(instance, message)
    assert subquery is not None
    request_ = replace(message, body=leaf_query_body(subquery.message))
    return _ms(lambda: check(run_leaf_query_message(instance, request_) == 1, "no row was found"))


def _query_concurrently(instance: Instance, choice: random.Random) -> tuple[list[float], float]:
    schema = read_schema(instance, "t")
    expected = [choice.randrange(_ROWS) for _ in range(_CONCURRENT_POINTS)]

    def ask(key: int) -> float:
        query = Query(make_key_regions(schema, [(key,)]))
        return _ms(lambda: _check_key(open_query(instance, "t", query).read_all(), key))

    def ask_all(keys: Sequence[int]) -> list[float]:
        return [ask(key) for key in keys]

    # A task for each key would take a third of the processor time of the process.
    callers = [expected[number::_CONCURRENT_QUERIES] for number in range(_CONCURRENT_QUERIES)]
    start = time.perf_counter()
    with ThreadPoolExecutor(_CONCURRENT_QUERIES) as threads:
        taken = [each for caller in threads.map(ask_all, callers) for each in caller]
    return taken, len(expected) / (time.perf_counter() - start)


def _check_key(rows: pa.Table, key: int) -> None:
    check(rows.column("k").to_pylist() == [key], f"key {key} was not found")


@contextmanager
def _instance(folder: Path) -> Iterator[Instance]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (
        seaweedfs(folder) as s3,
        dynoxide(folder) as dynamo,
        ministack(folder) as others,
        aws_instance(AwsServers(s3, dynamo, others), folder) as instance,
    ):
        limit_garbage_collection()
        opened_instance = open_instance(instance.where)
        yield opened_instance
        opened_instance.close()
    shutil.rmtree(folder)


def _add_a_file_to_each_leaf(instance: Instance) -> None:
    table = instance.table("wide")
    with table.state.reading() as state:
        leaves = list(state.partitions.leaves())
    files = []
    for leaf in leaves:
        low = max(int(leaf.region.ranges[0].min), 0)
        path = new_data_path(table.ref.id, leaf.id, system_clock())
        files.append(NewFile(DataFile(path, 1000, 20_000, (low,), (low,)), ((leaf.id, 1000),)))
    table.state.commit_or_raise(AddFiles("files", system_clock(), tuple(files)))


class _Timed:
    """Another object, and how long some of its methods take, each called once."""

    def __init__(self, inner: Any, names: dict[str, str], seconds_taken: dict[str, float]) -> None:
        self._inner, self._names, self._taken = inner, names, seconds_taken

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in self._names:
            return method

        def call_and_time(*arguments: Any) -> Any:
            start, cpu_begun = time.perf_counter(), time.process_time()
            answer = method(*arguments)
            key = self._names[name]
            self._taken[key] = time.perf_counter() - start
            self._taken[f"{key}_cpu"] = time.process_time() - cpu_begun
            return answer

        return call_and_time


def _message(table: str, query_id: str, regions: Sequence[dict[str, Any]]) -> Message:
    body = {"type": "Query", "queryId": query_id, "tableName": table, "regions": regions}
    return Message(query_id, json.dumps(body), "receipt", 1, system_clock())


def _key(choice: random.Random) -> dict[str, Any]:
    key = choice.randrange(_ROWS)
    return {"k": {"min": key, "max": key, "maxInclusive": True}}


def _ms(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def _percentiles(name: str, seconds_taken: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds_taken, n=100)
    return {f"{name}_p50": cuts[49], f"{name}_p99": cuts[98]}
