"""Telling the job tracker that a message can never be what it asks for, and why."""

from sleeper.errors import SleeperError
from sleeper.jobs.event import JobEvent, JobKind, JobStep, new_run_id
from sleeper.tables.table_ref import TABLE_NAME_LENGTH_MAX, TableId
from sleeper.wiring.instance import Instance

_REASON_CHARACTERS_MAX = 2_000


def record_rejection(
    instance: Instance, table_id: TableId, job_id: str, error: SleeperError
) -> None:
    """Records an ingest as rejected, for the reason that the error gives."""
    event = JobEvent(
        table_id,
        job_id,
        JobKind.INGEST,
        JobStep.REJECTED,
        instance.clock(),
        new_run_id(),
        reasons=(str(error)[:_REASON_CHARACTERS_MAX],),
    )
    instance.jobs.record(event)


def id_of_unknown_table(table_name: str | None, table_id: str | None) -> TableId:
    """What a message calls a table that is not known, cut to what a key may be."""
    return TableId((table_id or table_name or "")[:TABLE_NAME_LENGTH_MAX])
