"""Runs of adapters by message (docs/formats.md, "Adapter messages").

The queue has a group for each adapter, so the runs of one adapter follow each other.
"""

import hashlib
import re
from dataclasses import dataclass

from sleeper.adapters.definition import (
    ADAPTER_RUN,
    QUEUE,
    Adapter,
    DatabaseSource,
    FilesSource,
    check_adapter_name,
)
from sleeper.adapters.passwords import check_password_of_tasks
from sleeper.adapters.store import AdapterStore
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobStep, new_run_id
from sleeper.json_codec import JsonCodec, camel_case
from sleeper.lenient_json import StrictText
from sleeper.properties.instance import OPTIONAL_STACKS

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WHAT = "adapter message"


@dataclass(frozen=True, slots=True)
class AdapterMessage:
    """A run of an adapter. Its id is a part of the job's id."""

    adapter: StrictText
    run_id: StrictText

    def __post_init__(self) -> None:
        check_adapter_name(self.adapter)
        check_run_id(self.run_id)


# Unknown members are refused: a run has no other options.
_CODEC = JsonCodec(AdapterMessage, camel_case, known=("adapter", "runId"))


def check_run_id(run_id: str) -> str:
    """Returns the id. InvalidRequestError if it is invalid: ids of jobs contain it."""
    if _RUN_ID.fullmatch(run_id) is None:
        raise InvalidRequestError(
            f"run id {run_id[:120]!r} is invalid (expected 1 to 100 letters, digits, '.', '-' or "
            "'_', of which the first is a letter or digit)"
        )
    return run_id


def parse_adapter_message(body: str) -> AdapterMessage:
    """Parses the body of a message. InvalidRequestError names a wrong member."""
    return _CODEC.parse(body, _WHAT)


def submit_run(instance: Instance, name: str, run_id: str | None = None) -> str:
    """Sends a run of an adapter to its queue and returns the run's id.

    NotFoundError if there is no such adapter, InvalidRequestError if workers could not run it.
    """
    adapter = AdapterStore(instance.storage.root).get(name)
    check_workers(instance, adapter)
    return send_run(instance, adapter, run_id)


def check_workers(instance: Instance, adapter: Adapter) -> None:
    """Raises InvalidRequestError if workers of the instance could not run the adapter.

    Tasks on AWS read files in S3, and the listed secrets of Secrets Manager.
    """
    if QUEUE not in instance.jobs.queues:
        raise InvalidRequestError(
            f"instance {instance.where} has no queue for runs of adapters (expected the part "
            f"AdapterStack in {OPTIONAL_STACKS.name})"
        )
    source = adapter.source
    if isinstance(source, FilesSource):
        instance.storage.sources.check_message(source.paths)
    if isinstance(source, DatabaseSource) and instance.background is None:
        check_password_of_tasks(instance, source)


def send_run(instance: Instance, adapter: Adapter, run_id: str | None = None) -> str:
    """Sends a run to the queue and returns its id. It is recorded as created before."""
    run_id = new_run_id() if run_id is None else check_run_id(run_id)
    table_id = instance.tables.index.find(adapter.sink.table).id
    job_id = adapter.job_id(run_id)
    event = JobEvent(table_id, job_id, ADAPTER_RUN, JobStep.CREATED, instance.clock())
    queue = instance.jobs.queue(QUEUE)
    instance.jobs.tracker.record(event)
    body = _CODEC.format(AdapterMessage(adapter.name, run_id))
    fingerprint = hashlib.sha256(job_id.encode()).hexdigest()
    queue.send(body, group=adapter.name, deduplication_id=fingerprint)
    return run_id
