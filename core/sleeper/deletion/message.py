"""Deletes by message (docs/formats.md, "Delete messages"): sent, parsed, and run."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from sleeper.deletion.service import (
    DeleteResult,
    check_bounded,
    check_delete_access,
    check_delete_id,
    check_regions,
    delete_table_rows,
)
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobKind, JobRunRef, JobStep
from sleeper.jobs.ingest_job import REQUESTERS
from sleeper.jobs.queue import Message, QueueName
from sleeper.json_codec import Conversion, JsonCodec, Member, camel_case
from sleeper.lenient_json import OptionalText, StrictText, parse_message_object, to_text
from sleeper.partitions.json import region_to_json
from sleeper.partitions.region import Region, whole_region
from sleeper.partitions.selection import SELECTION_MEMBERS, parse_selection
from sleeper.runs.commit import commit_later, has_committer
from sleeper.runs.tracking import RunResult, check_age, find_job_table, track_run
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.transaction import new_transaction_id
from sleeper.tables import TableId

logger = logging.getLogger(__name__)

_WHAT = "delete message"
_ALL = "all"
_REGION_MEMBERS = (*SELECTION_MEMBERS, _ALL)
_KIND = JobKind.DELETION


def _to_delete_id(raw: Any) -> str:
    delete_id = to_text(raw)
    check_delete_id(delete_id)
    return delete_id


def _select(raw: dict[str, Any]) -> Mapping[str, Any]:
    return {name: raw[name] for name in _REGION_MEMBERS if name in raw}


@dataclass(frozen=True, slots=True)
class DeleteMessage:
    """A delete of rows of the table `table_name` or `table_id`.

    `selection` has the members that select rows, whose meaning depends on the schema. `requesters`
    are the callers on whose behalf the message was sent again, as in query messages.
    """

    id: Annotated[str, Conversion(_to_delete_id)]
    table_name: OptionalText = None
    table_id: OptionalText = None
    requesters: Annotated[tuple[StrictText, ...], Member(REQUESTERS, optional=True)] = ()
    selection: Annotated[Mapping[str, Any], Member(flat=True), Conversion(_select, dict)] = field(
        default_factory=dict
    )


# Unknown members are refused: without a misspelt one, the message would delete other rows.
_CODEC = JsonCodec(
    DeleteMessage, camel_case, known=("id", "tableName", "tableId", *_REGION_MEMBERS, REQUESTERS)
)


def parse_delete_message(body: str, message_id: str) -> DeleteMessage:
    """Parses the body of a message, whose id replaces a missing one.

    InvalidRequestError names a wrong member. The rows are not parsed.
    """
    raw = parse_message_object(body, _WHAT)
    if raw.get("id") in (None, ""):
        raw["id"] = message_id
    message = _CODEC.from_json(raw, _WHAT)
    if message.table_name is None and message.table_id is None:
        raise InvalidRequestError(f'{_WHAT}: "tableName" or "tableId" is missing')
    return message


def parse_deleted_regions(schema: Schema, raw: Mapping[str, Any]) -> tuple[Region, ...]:
    """Returns the regions of the members that select the rows of a delete.

    Raises `InvalidRequestError` with the name of the member that is wrong, and if they select
    nothing: deleting all rows requires `"all": true`.
    """
    every_row = raw.get(_ALL)
    if every_row is not None and not isinstance(every_row, bool):
        raise InvalidRequestError(f'"all" must be true or false, not {every_row!r:.200}')
    regions = parse_selection(schema, raw)
    if every_row and regions is not None:
        raise InvalidRequestError('"all" deletes all rows (expected no keys, ranges or regions)')
    if not every_row and not regions:
        raise InvalidRequestError(
            'no rows to delete (expected "keys", "ranges" or "regions", or "all": true for all '
            "rows)"
        )
    check_bounded(schema, regions or (), '"all": true')
    return regions or (whole_region(schema),)


def submit_delete(
    instance: Instance, table_name: str, regions: Sequence[Region], delete_id: str | None = None
) -> str:
    """Sends a delete to its queue, and returns its id.

    It deletes the rows that are committed before it runs.
    """
    if delete_id is not None:
        check_delete_id(delete_id)
    table = instance.table(table_name)
    schema = _read_schema(table)
    selection = {"regions": [region_to_json(schema, each) for each in check_regions(regions)]}
    message = DeleteMessage(
        delete_id or new_transaction_id(), table_id=table.ref.id, selection=selection
    )
    body = json.dumps(_CODEC.to_json(message), separators=(",", ":"))
    instance.jobs.queue(QueueName.DELETION).send(body)
    event = JobEvent(table.ref.id, message.id, _KIND, JobStep.CREATED, instance.clock())
    instance.jobs.tracker.record(event)
    return message.id


def run_delete_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> DeleteResult:
    """Runs the delete of a message. An invalid or too old message is tracked as rejected.

    If the instance has a committer, it commits the delete, and records the outcome.
    InvalidRequestError for a rejected message, and if the sender may not see all of the table.
    """
    with track_run(instance, _KIND, TableId(""), message.message_id).reject_errors():
        request = parse_delete_message(message.body, message.message_id)
    table = find_job_table(instance, _KIND, request)
    tracker = track_run(instance, _KIND, table.ref.id, request.id, task_id)
    with tracker.reject_errors():
        check_age(instance, message, f"delete {request.id}", "if its rows are still there")
        check_delete_access(table, (message.sender, *request.requesters))
        try:
            regions = parse_deleted_regions(_read_schema(table), request.selection)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{_WHAT}: {error}") from error
    is_queued = has_committer(instance)
    result = tracker.execute(
        lambda run: (_send if is_queued else _delete)(table, regions, run),
        lambda _: RunResult(None, is_queued=is_queued),
    )
    if not is_queued:
        extra = {"table": table.ref.name, "job_id": request.id}
        logger.info("deleted rows at transaction %s", result.number, extra=extra)
    return result


def run_queued_delete(instance: Instance, message: Message, task_id: str) -> tuple[int, int]:
    """Runs the delete of a message. Returns no numbers of rows, which a delete does not have."""
    run_delete_message(instance, message, task_id)
    return 0, 0


def _delete(table: OpenTable, regions: Sequence[Region], run: JobRunRef) -> DeleteResult:
    try:
        return delete_table_rows(table, regions, run.job_id)
    except ConflictError as error:
        # Another attempt would be refused too.
        raise InvalidRequestError(str(error)) from error


def _send(table: OpenTable, regions: Sequence[Region], run: JobRunRef) -> DeleteResult:
    """Sends the delete to the committer, so that the number of its transaction is unknown."""
    distinct = check_regions(regions)
    commit_later(table.instance)(run, DeleteRows(id=run.job_id, regions=tuple(distinct)))
    return DeleteResult(run.job_id, None, len(distinct), already_done=False)


def _read_schema(table: OpenTable) -> Schema:
    with table.state.reading() as state:
        return state.schema
