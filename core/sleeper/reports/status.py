"""The status of an instance: the problems of its tables, jobs and queues, and of all systems.

Background work that does not run cannot report itself, so everything is judged from what is stored:
due times, the last runs of jobs, and what waits.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState, JobStatus
from sleeper.properties.table import BATCHER_FILE_AGE_SECONDS, COMPACTION_FILES_BATCH_SIZE
from sleeper.reports.jobs import describe_reasons, name_tables
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize, summarize
from sleeper.reports.problem import Problem, ProblemState, check_each
from sleeper.runs.task import find_loss_of_task
from sleeper.systems import load, systems

_HOUR_MS = 3_600_000
_RECENT_MS = 24 * _HOUR_MS
_RECENT_JOBS = 100
_LATE_MS = 15 * 60_000
_BATCHES_PER_LEAF = 10
_KINDS = (
    JobKind.INGEST,
    JobKind.BULK_IMPORT,
    JobKind.BULK_EXPORT,
    JobKind.COMPACTION,
    JobKind.DELETION,
)
_COLUMNS = (
    Column("state", "State", value=lambda each: each.state.value),
    Column("kind", "Kind"),
    Column("name", "Name"),
    Column("since", "Since", ColumnKind.TIME, lambda each: each.since_ms),
    Column("reason", "Reason"),
)


def gather_status(instance: Instance) -> tuple[Problem, ...]:
    """Returns all problems, the worst first. A check that fails is a problem itself."""
    checks: dict[str, Callable[[Instance], Iterable[Problem]]] = {
        "queues": _find_dead_letters,
        "jobs": _find_failed_jobs,
        "ingest batcher": _find_waiting_files,
        "tables": _find_problems_of_tables,
        **{each.name: load(each.problems) for each in systems() if each.problems is not None},
    }
    result: list[Problem] = []
    for name, check in checks.items():
        try:
            result += check(instance)
        except SleeperError as error:
            result.append(Problem(ProblemState.FAILING, "check", name, str(error)))
    order = list(ProblemState)
    return tuple(sorted(result, key=lambda each: (order.index(each.state), each.kind, each.name)))


def report_status(instance: Instance) -> Listing:
    """Returns a row per problem, the worst first."""
    problems = gather_status(instance)
    counts = {state.value: sum(each.state is state for each in problems) for state in ProblemState}
    summary = summarize(pluralize(len(problems), "problem"), counts)
    if not problems:
        summary = "nothing is overdue, failing, lagging or dead"
    return Listing.describe("status", summary, _COLUMNS, problems)


def _find_dead_letters(instance: Instance) -> Iterator[Problem]:
    queues = {each.value: each for each in instance.jobs.queues}

    def find(name: str) -> Iterator[Problem]:
        dead = instance.jobs.queue(queues[name]).counts().dead
        if not dead:
            return
        oldest = instance.jobs.dead_letters(queues[name]).list(1)
        reason = pluralize(dead, "dead letter")
        if oldest and oldest[0].reason:
            reason += f", the oldest: {oldest[0].reason}"
        since_ms = oldest[0].died_ms if oldest else None
        yield Problem(ProblemState.DEAD, "queue", name, reason, since_ms)

    return check_each("queue", queues, find)


def _find_failed_jobs(instance: Instance) -> Iterator[Problem]:
    """Yields, by kind and table, the jobs of the last day that failed or whose task is lost."""
    now_ms, names = instance.clock(), name_tables(instance.tables.index)
    find_loss = partial(find_loss_of_task, instance, now_ms)
    for kind in _KINDS:
        noun = f"{kind.value.replace('_', ' ')} job"
        failed: dict[tuple[ProblemState, str], list[tuple[JobStatus, str]]] = defaultdict(list)
        for job in instance.jobs.tracker.recent(kind, limit=_RECENT_JOBS):
            run = job.last_run
            if run is None or (run.ended_ms or run.started_ms or 0) < now_ms - _RECENT_MS:
                continue
            loss = find_loss(run.task_id or "") if job.state is JobState.RUNNING else None
            if loss is None and job.state is not JobState.FAILED:
                continue
            state = ProblemState.FAILING if loss is None else ProblemState.DEAD
            table = names.get(job.table_id, job.table_id)
            failed[state, table].append((job, describe_reasons(job, loss) or ""))
        for (state, table), jobs in failed.items():
            newest, reason = jobs[0]
            more = f" (and {len(jobs) - 1} more within a day)" if len(jobs) > 1 else ""
            since_ms = newest.last_run.ended_ms if newest.last_run else None
            text = f"table {table}{more}: {reason}"
            yield Problem(state, noun, newest.job_id, text, since_ms)


def _find_waiting_files(instance: Instance) -> Iterator[Problem]:
    try:
        requests = instance.jobs.file_requests()
    except InvalidRequestError:
        return  # an instance on AWS without the batcher
    tables = {each.name: each.id for each in instance.tables.index.list()}
    waiting = set(requests.tables())

    def find(name: str) -> Iterator[Problem]:
        properties = instance.tables.properties.read(tables[name])
        longest_ms = 1000 * properties.get(BATCHER_FILE_AGE_SECONDS) + _LATE_MS
        times_ms = [each.received_ms for each in requests.waiting(tables[name])]
        if times_ms and instance.clock() - min(times_ms) > longest_ms:
            reason = f"{pluralize(len(times_ms), 'file')} wait for a job"
            yield Problem(ProblemState.OVERDUE, "ingest batcher", name, reason, min(times_ms))

    names = [name for name, table_id in tables.items() if table_id in waiting]
    yield from check_each("ingest batcher", names, find)


def _find_problems_of_tables(instance: Instance) -> Iterator[Problem]:
    refs = {each.name: each for each in instance.tables.index.list()}
    return check_each(
        "table", refs, lambda name: _find_problems_of_table(OpenTable(instance, refs[name]))
    )


def _find_problems_of_table(table: OpenTable) -> Iterator[Problem]:
    store, name = table.state, table.ref.name
    with store.reading() as state:
        totals = state.files.totals()
    healthy = _BATCHES_PER_LEAF * table.properties().get(COMPACTION_FILES_BATCH_SIZE)
    if totals.references > healthy * max(1, totals.leaves):
        reason = (
            f"{pluralize(totals.references, 'file reference')} in "
            f"{pluralize(totals.leaves, 'leaf', 'leaves')}: compaction does not keep up"
        )
        yield Problem(ProblemState.LAGGING, "table", name, reason)
    for follower in store.followers():
        if follower.lost and not follower.is_of_system:
            reason = (
                f"table {name}: it has missed {pluralize(follower.lost, 'transaction')}, whose "
                "changes are no longer readable"
            )
            yield Problem(ProblemState.DEAD, "follower", follower.name, reason)
