"""Rules of adapters: what a schedule made due was run, or its end is recorded; a commit is told.

The rows of each version are those of the source: the model has them, and `rows` compares them.
"""

from simulation.checks.look import Look
from simulation.checks.violation import require
from sleeper.adapters.definition import ADAPTER_RUN, QUEUE, Adapter
from sleeper.adapters.due import find_missed
from sleeper.adapters.store import AdapterStore
from sleeper.errors import NotFoundError
from sleeper.jobs.status import JobState
from sleeper.schedule import due_run_id
from sleeper.tables import TableId

_RUN = "a due run is made, or its failure is recorded"
_TOLD = "a run that is recorded as committed is in the log"
# A process that sends runs may be paused for more than an hour.
_DUE_MS = 2 * 3_600_000


def check_adapters(look: Look) -> None:
    """Checks the runs of all adapters."""
    instance = look.instance
    for run in instance.jobs.tracker.recent(ADAPTER_RUN, limit=1_000):
        model = look.model(run.table_id)
        if model is None or run.state is not JobState.COMMITTED:
            continue
        committed = any(each.transaction.id == run.job_id for each in model.log)
        inherited = any(chunk.job_id == run.job_id for chunk in model.contents.values[0])
        require(committed or inherited, _TOLD, run.job_id, table=run.table_id)
    if look.is_end and look.has_right_clocks:
        store = AdapterStore(instance.storage.root)
        for adapter in store.list():
            _check_due(look, store, adapter)


def _check_due(look: Look, store: AdapterStore, adapter: Adapter) -> None:
    instance = look.instance
    try:
        table_id = TableId(instance.tables.index.find(adapter.sink.table).id)
    except NotFoundError:
        return  # the sink was deleted, and each run is a problem that is reported
    last_ms = store.last_due_ms(adapter.name)
    if adapter.schedule is None or last_ms is None:
        return
    require(
        find_missed(store, adapter, instance.clock() - _DUE_MS) is None,
        _RUN,
        "no run was sent for hours",
        adapter=adapter.name,
        last=last_ms,
    )
    job_id = adapter.job_id(due_run_id(last_ms))
    try:
        state = instance.jobs.tracker.job(table_id, job_id).state
    except NotFoundError:
        state = None
    is_dead = instance.jobs.queue(QUEUE).counts().dead > 0
    ended = state in (JobState.COMMITTED, JobState.REJECTED)
    require(ended or is_dead, _RUN, f"{job_id} is {state}", adapter=adapter.name)
