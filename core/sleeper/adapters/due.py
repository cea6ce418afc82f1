"""Schedules adapters, and sends their runs that are due.

A function does it on AWS every minute, and `sleeper run` locally every few seconds.

A run waits until the adapter's run before it has ended, and if more times pass meanwhile, only the
latest is run. The due time of the last sent run is recorded after its message was sent. A process
that dies in between, or two at once, send the same run again under the same id, which changes
nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sleeper.adapters.definition import QUEUE, Adapter
from sleeper.adapters.message import check_workers, send_run
from sleeper.adapters.store import AdapterStore
from sleeper.errors import NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.jobs.status import JobState, JobStatus
from sleeper.schedule import due_run_id, due_run_ms, make_schedule, missed_due_ms
from sleeper.statestore.fold import DAY_MS

logger = logging.getLogger(__name__)
_ENDED = {JobState.COMMITTED, JobState.REJECTED}
# Longer than the delay before any retry of a failed run (`sleeper.runs.retry_policy`).
_RETRIED_MS = 15 * 60_000
_LOST_MS = DAY_MS


@dataclass(frozen=True, slots=True)
class DueReport:
    """The job ids of sent runs, the names of adapters whose run waits, and errors as text."""

    sent: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def schedule_adapter(instance: Instance, name: str, expression: str | None) -> Adapter:
    """Sets or removes the schedule of an adapter, and returns the changed adapter.

    A new schedule begins now. InvalidRequestError if the expression is invalid or workers could
    not run the adapter, NotFoundError if there is no such adapter.
    """
    store = AdapterStore(instance.storage.root)
    adapter = store.get(name)
    if expression is not None:
        check_workers(instance, adapter)
    schedule = None if expression is None else make_schedule(expression, instance.clock())
    changed = replace(adapter, schedule=schedule)
    store.replace(changed)
    return changed


def send_due_runs(instance: Instance, now_ms: int | None = None) -> DueReport:
    """Sends the due run of each adapter. An error of one adapter does not stop the others.

    `now_ms` is by default the time of the instance's clock.
    """
    now_ms = instance.clock() if now_ms is None else now_ms
    store = AdapterStore(instance.storage.root)
    sent, waiting, problems = [], [], []
    for name in store.names():
        try:
            adapter = store.get(name)
            due_ms = _due_ms(store, adapter, now_ms)
            if due_ms is None:
                continue
            if _is_active(instance, store, adapter):
                logger.info("run of adapter %s waits for the run before it", name)
                waiting.append(name)
                continue
            sent.append(_send(instance, store, adapter, due_ms))
        except NotFoundError as error:
            if name in store.names():
                problems.append(f"adapter {name!r}: {error}")
        except SleeperError as error:
            problems.append(f"adapter {name!r}: {error}")
    for problem in problems:
        logger.warning("could not start %s", problem)
    return DueReport(tuple(sent), tuple(waiting), tuple(problems))


def start_due_adapters(instance: Instance, due_ms: int | None) -> tuple[bool, Sequence[str]]:
    """Sends the runs that are due. Returns whether there were any, and the problems."""
    report = send_due_runs(instance, due_ms)
    return bool(report.sent), report.problems


def find_missed(store: AdapterStore, adapter: Adapter, now_ms: int) -> int | None:
    """Returns the due time that passed minutes ago without a run; None if there is none."""
    if adapter.schedule is None:
        return None
    return missed_due_ms(adapter.schedule, store.last_due_ms(adapter.name), now_ms)


def _due_ms(store: AdapterStore, adapter: Adapter, now_ms: int) -> int | None:
    if adapter.schedule is None:
        return None
    return due_run_ms(adapter.schedule, store.last_due_ms(adapter.name), now_ms)


def _is_active(instance: Instance, store: AdapterStore, adapter: Adapter) -> bool:
    """Returns whether the last scheduled run still waits, runs or will be retried."""
    last_ms = store.last_due_ms(adapter.name)
    job = None if last_ms is None else _find_job(instance, adapter, last_ms)
    if job is None or job.state in _ENDED:
        return False
    # A run whose process was killed too often is a dead letter without a recorded end. The runs of
    # other adapters may keep the queue busy for ever.
    lost_ms = _RETRIED_MS if job.state is JobState.FAILED else _LOST_MS
    if instance.clock() - job.updated_ms > lost_ms:
        return False
    return instance.jobs.queue(QUEUE).counts().unfinished > 0


def _send(instance: Instance, store: AdapterStore, adapter: Adapter, due_ms: int) -> str:
    job = _find_job(instance, adapter, due_ms)
    if job is None or job.state is JobState.CREATED:
        send_run(instance, adapter, due_run_id(due_ms))
    store.record_due(adapter.name, due_ms)
    return adapter.job_id(due_run_id(due_ms))


def _find_job(instance: Instance, adapter: Adapter, due_ms: int) -> JobStatus | None:
    table_id = instance.tables.index.find(adapter.sink.table).id
    try:
        return instance.jobs.tracker.job(table_id, adapter.job_id(due_run_id(due_ms)))
    except NotFoundError:
        return None
