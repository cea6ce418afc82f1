"""The task of the benchmark of costs: each job on servers behind proxies that count requests."""

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

import sleeper
from benchmarks.billed_requests import SQS_REQUESTS, Counts, count_dynamo, count_s3, count_sqs
from benchmarks.counting_proxy import CountingProxy, counting_proxy
from benchmarks.measuring import Watch
from benchmarks.result import check
from benchmarks.schema import SCHEMA
from sleeper.bulk_export.properties import BULK_EXPORT_BUCKET
from sleeper.bulk_export.service import export_table
from sleeper.committer import commit_messages
from sleeper.compaction.plan import compact_table
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import Message, QueueName
from sleeper.opening import open_instance
from sleeper.query_service.service import run_query_message
from sleeper.schema.model import schema_to_json
from sleeper.workers.schedule import fan_out_tables, start_tasks
from sleeper.workers.worker import Worker
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.dynoxide import dynoxide
from tests.servers.ministack import ministack
from tests.servers.seaweedfs import seaweedfs

_KEYS = 200
_EXPORTS = "exports"
_TABLE = "words"
# A message is sent, received and deleted.
_REQUESTS_PER_MESSAGE = 3


def count(watch: Watch, source: str) -> dict[str, Any]:
    """Returns for each job its `requests` by price, `cpu` seconds and the `bytes` that it reads.

    A lookup and a scheduled function are means of many, without bytes.
    """
    with TemporaryDirectory() as folder, _opened(Path(folder)) as (aws, instance, meter), watch:
        face = sleeper.Instance(instance)
        table = face.create_table(_TABLE, json.loads(schema_to_json(SCHEMA)))
        files = sorted(Path(source).iterdir())
        for file in files:
            aws.s3().upload_file(str(file), aws.source_bucket, file.name)
        urls = [f"s3://{aws.source_bucket}/{file.name}" for file in files]
        size = sum(file.stat().st_size for file in files)
        answer = {"ingest": meter.run(lambda: [table.ingest(url) for url in urls], size)}
        stored = _stored_bytes(instance, len(files))
        answer["compaction"] = meter.run(lambda: _compact(instance), stored)
        answer["export"] = meter.run(
            lambda: export_table(instance, _TABLE), _stored_bytes(instance, 1)
        )
        keys = Random(7).sample(_keys(files[0]), 2 * _KEYS + 1)
        _look_up(table, keys[:1])
        answer["lookup"] = _mean(meter.run(lambda: _look_up(table, keys[1 : _KEYS + 1])), _KEYS)
        _query(instance, keys[:1])
        answer["query"] = _mean(meter.run(lambda: _query(instance, keys[_KEYS + 1 :])), _KEYS)
        answer["query"]["requests"][SQS_REQUESTS] += _REQUESTS_PER_MESSAGE
        answer["schedule"] = _mean(meter.run(lambda: _find_no_work(instance)), _SCHEDULES)
    return answer


def _compact(instance: Instance) -> None:
    """Runs the job as a task does, and its commit as the committer does."""
    compact_table(instance, _TABLE, full=True)
    worker = Worker(instance, new_task_id(), threading.Event())
    while worker.run_one():
        pass
    commits = instance.jobs.queue(QueueName.COMMITS)
    while messages := commits.receive(10):
        check(commit_messages(instance, messages).failed == [], "a commit failed")
        for message in messages:
            commits.delete(message.receipt)


def _look_up(table: sleeper.Table, keys: Sequence[str]) -> None:
    for key in keys:
        check(table.query(keys=[[key]]).to_arrow().num_rows == 1, f"key {key} is not found")


def _query(instance: Instance, keys: Sequence[str]) -> None:
    """Runs a query message for each key, as the function does, without its queue."""
    for key in keys:
        query_id = uuid.uuid4().hex
        bounds = {"min": key, "max": key, "maxInclusive": True}
        region = {"key": bounds, "stringsBase64Encoded": False}
        body = {"type": "Query", "queryId": query_id, "tableName": _TABLE, "regions": [region]}
        message = Message(query_id, json.dumps(body), "", 1, 0)
        check(run_query_message(instance, message) == 1, f"key {key} is not found")


_SCHEDULES = 2


def _find_no_work(instance: Instance) -> None:
    """Runs one scheduled function of each of two kinds, which find nothing to do."""
    start_tasks(instance, JobKind.INGEST)
    fan_out_tables(instance, QueueName.GARBAGE_COLLECTION)


def _keys(file: Path) -> list[str]:
    keys: list[str] = pq.read_table(file, columns=["key"]).column(0).to_pylist()
    return keys


def _stored_bytes(instance: Instance, count: int) -> int:
    with instance.table(_TABLE).state.reading() as state:
        files = list(state.files.all())
    check(len(files) == count, f"the table has {len(files)} files (expected {count})")
    return sum(file.bytes for file in files)


def _mean(job: dict[str, Any], count: int) -> dict[str, Any]:
    requests = Counter({name: n / count for name, n in job["requests"].items()})
    return {"cpu": job["cpu"] / count, "requests": requests}


@dataclass(frozen=True, slots=True)
class _Meter:
    """Counts the requests of a job, and its processor time without that of the proxies."""

    proxies: Sequence[CountingProxy]
    counts: Counts

    def run(self, job: Callable[[], object], size: int = 0) -> dict[str, Any]:
        self.counts.clear()
        start = self._cpu_seconds()
        job()
        return {
            "cpu": self._cpu_seconds() - start,
            "requests": dict(self.counts),
            "bytes": size,
        }

    def _cpu_seconds(self) -> float:
        return time.process_time() - sum(proxy.cpu_seconds for proxy in self.proxies)


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[AwsInstance, Instance, _Meter]]:
    counts: Counts = Counter()
    with ExitStack() as stack:
        places = [folder / name for name in ("s3", "dynamo", "others", "state")]
        for place in places:
            place.mkdir()
        s3 = stack.enter_context(seaweedfs(places[0], (_EXPORTS,)))
        dynamo = stack.enter_context(dynoxide(places[1]))
        others = stack.enter_context(ministack(places[2]))

        def counted(url: str, count: Callable[[Counts, Any], None]) -> CountingProxy:
            return stack.enter_context(counting_proxy(url, lambda each: count(counts, each)))

        proxies = (
            counted(s3.endpoint, count_s3),
            counted(dynamo.url, count_dynamo),
            counted(others.url, count_sqs),
        )
        servers = AwsServers(
            replace(s3, endpoint=proxies[0].endpoint),
            replace(dynamo, url=proxies[1].endpoint),
            replace(others, url=proxies[2].endpoint),
        )
        values = {BULK_EXPORT_BUCKET.name: _EXPORTS}
        aws = stack.enter_context(aws_instance(servers, places[3], values))
        instance = open_instance(aws.where)
        stack.callback(instance.close)
        yield aws, instance, _Meter(proxies, counts)
