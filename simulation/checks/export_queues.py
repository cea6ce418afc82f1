"""Rules of export queues: what the receiver, dead letters and pending exports have together.

The *known* exports of a queue are those that its receiver has, those that are pending, and those
that are dead. The queue's *position* is the transaction up to which it has captured: until there,
known exports tell of each key that the table changed, and beyond there of nothing.

Rows are exported as they are stored. Every merge drops rows that have aged off by then, and
compactions combine rows that are aggregated. Of such tables fewer rules hold.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulation.checks.look import Look
from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.visible import Chunk, Row, visible_rows
from simulation.systems.receiver import (
    NAME_OPTION,
    RECEIVERS,
    Key,
    Received,
    Receiver,
    Value,
    received_exports,
)
from sleeper.errors import NotFoundError
from sleeper.export_queue.control import queue_status
from sleeper.export_queue.definition import ExportQueue
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.listings import QueueState
from sleeper.export_queue.registration import OpenQueue, find_queue
from sleeper.export_queue.rows import decode_rows
from sleeper.export_queue.store import ExportStore, RegisteredQueue, open_export_store
from sleeper.export_queue.table_queries import queues_in
from sleeper.instance import Instance
from sleeper.processing.model import Processing
from sleeper.schema.model import Schema

_PROTOCOL = "exports come in order and as they are"
_COMMITTED = "only committed changes are exported"
_COMPLETE = "no export is lost"
_NEWEST = "the newest export is the state of the table"
_ALL = 1_000_000_000


def check_queues(look: Look) -> None:
    """Checks every queue of an active table."""
    for registered in open_export_store(look.instance).list():
        model = look.model(registered.table_id)
        if model is None or not registered.generation:
            continue
        try:
            open_queue = find_queue(look.instance, registered.name)
        except NotFoundError:
            continue  # deleted, and not yet removed
        check_queue(look, open_queue, model)


def describe_work(instance: Instance) -> Iterator[str]:
    """Yields the queues whose exports have not all left, except paused and stopped ones."""
    for registered in open_export_store(instance).list():
        try:
            status = queue_status(instance, registered.name)
        except NotFoundError:
            continue
        if status.state in (QueueState.ACTIVE, QueueState.FAILING) and status.pending:
            yield f"{status.pending} pending exports of queue {registered.name}"


def check_queue(look: Look, queue: OpenQueue, model: TableModel) -> None:
    """Checks one queue against the model of its table."""
    registered, definition = queue.registered, queue.definition
    receiver = RECEIVERS.find(definition.exporter.options[NAME_OPTION])
    require(not receiver.problems, _PROTOCOL, registered.name, problems=receiver.problems[:5])
    known = _known_exports(look.instance, definition, receiver)
    expected = _Expected.make(queue, model)
    _check_committed(registered, known, expected)
    if expected.is_comparable and not _may_have_aged(look, model):
        _check_newest(registered, known, expected)


def _known_exports(
    instance: Instance, queue: ExportQueue, receiver: Receiver
) -> dict[tuple[Key, int], Value]:
    known = dict(receiver.exports)
    for bucket, content in _stored_exports(open_export_store(instance), queue.name):
        for each in received_exports(ExportBatch(queue, bucket, decode_rows(queue, content))):
            known[each.key, each.sequence] = each.value
    return known


def _stored_exports(store: ExportStore, name: str) -> Iterator[tuple[int, bytes]]:
    """Yields the pending and dead items of all buckets."""
    for status in store.buckets(name):
        for item in store.read(name, status.bucket, _ALL):
            yield status.bucket, item.content
    for dead in store.dead_letters(name, _ALL):
        yield dead.bucket, dead.content


@dataclass(frozen=True)
class _Expected:
    """What the model says of a queue: the rows of each key at its start and at its position."""

    queue: ExportQueue
    model: TableModel
    start: int
    position: int
    before: dict[Key, Counter[Row]]
    after: dict[Key, Counter[Row]]

    @classmethod
    def make(cls, queue: OpenQueue, model: TableModel) -> "_Expected":
        position = min(queue.registered.position.number, model.number)
        with queue.table.state.reading() as state:
            start = queues_in(state).find(queue.definition.name).start
        definition, schema = queue.definition, model.schema(position)
        has_all = definition.existing_rows
        before = {} if has_all else _rows_by_key(definition, model, start, schema)
        after = _rows_by_key(definition, model, position, schema)
        return cls(definition, model, start, position, before, after)

    @property
    def is_comparable(self) -> bool:
        """Whether known exports must be complete."""
        if self.position < self.start:
            return False
        if self.queue.existing_rows and self.position < self.start + 1:
            return False
        covering = self.model.publication_at(self.position)
        is_expired = covering is not None and covering.ended is not None
        return not (self.model.is_snapshot_table and (covering is None or is_expired))

    @property
    def has_exact_rows(self) -> bool:
        """Whether no compaction changes stored rows."""
        return not self.model.processing(self.position).aggregations

    def values(self, rows: Counter[Row]) -> set[Value] | None:
        """Returns the values that an export of one of the rows may have, None for any.

        A field that the table no longer has was exported with its value or as null.
        """
        schema = self.model.schema(self.position)
        names = [each.name for each in schema.fields]
        created = self.model.schema(self.start)
        ids = {each.name: each.id for each in created.fields}
        by_id = {each.id: names.index(each.name) for each in schema.fields}
        positions = [by_id.get(ids.get(each.name, -1)) for each in self.queue.values]
        if None in positions:
            return None
        return {tuple(row[at] for at in positions if at is not None) for row in rows}


def _may_have_aged(look: Look, model: TableModel) -> bool:
    """Returns whether a merge may have dropped rows, because they are old."""
    now_ms = look.instance.clock()
    for age_off in model.processing(model.number).age_offs:
        if not look.has_right_clocks:
            return True
        for chunk in (each for chunks in model.contents.values for each in chunks):
            position = [each.name for each in chunk.schema.fields].index(age_off.field)
            if any(row.values[position] <= now_ms - age_off.age_ms for row in chunk.rows):
                return True
    return False


def _rows_by_key(
    queue: ExportQueue, model: TableModel, version: int, schema: Schema
) -> dict[Key, Counter[Row]]:
    """Returns the stored rows of a version by the queue's key, in the form of the schema.

    Of a table of latest rows, they are the rows that it shows.
    """
    names = [each.name for each in schema.fields]
    positions = [names.index(each.name) for each in queue.keys]
    chunks: Sequence[Chunk] = model.contents.at(version)
    result: dict[Key, Counter[Row]] = defaultdict(Counter)
    for row in visible_rows(chunks, schema, Processing(), 0):
        result[tuple(row[at] for at in positions)][row] += 1
    return dict(result)


def _check_committed(
    registered: RegisteredQueue, known: dict[tuple[Key, int], Value], expected: _Expected
) -> None:
    """Checks that exports are of transactions that were committed, and not of later ones."""
    model = expected.model
    # Exports of a large transaction may be stored before the position is beyond it.
    largest = max((sequence for _, sequence in known), default=0)
    require(
        largest <= model.number,
        _COMMITTED,
        f"queue {registered.name} exported transaction {largest} of {model.number}",
        table=model.id,
    )
    written = _written_keys(expected)
    strangers = [key for key, _ in known if key not in written]
    require(not strangers, _COMMITTED, f"queue {registered.name}", keys=strangers[:5])


def _written_keys(expected: _Expected) -> set[Key]:
    """Returns the keys of all rows that the table has ever had."""
    keys: set[Key] = set()
    for chunks in expected.model.contents.values:
        for chunk in chunks:
            names = [each.name for each in chunk.schema.fields]
            positions = [names.index(each.name) for each in expected.queue.keys]
            keys |= {tuple(row.values[at] for at in positions) for row in chunk.rows}
    return keys


def _check_newest(
    registered: RegisteredQueue, known: dict[tuple[Key, int], Value], expected: _Expected
) -> None:
    newest: dict[Key, Received] = {}
    for (key, sequence), value in known.items():
        if sequence <= expected.position and (key not in newest or newest[key].sequence < sequence):
            newest[key] = Received(key, value, sequence)
    for key in sorted({*expected.before, *expected.after, *newest}, key=repr):
        before = expected.before.get(key, Counter())
        after = expected.after.get(key, Counter())
        _check_key(registered, expected, key, before, after, newest.get(key))


def _check_key(
    registered: RegisteredQueue,
    expected: _Expected,
    key: Key,
    before: Counter[Row],
    after: Counter[Row],
    newest: Received | None,
) -> None:
    details = {
        "queue": registered.name,
        "table": expected.model.id,
        "key": key,
        "start": expected.start,
        "position": expected.position,
        "rows": list(after.items())[:5],
        "export": newest,
        "before": list(before.items())[:5],
        "log": [(each.number, each.transaction.kind) for each in expected.model.log][-12:],
    }
    if newest is None:
        require(before == after, _COMPLETE, "a key has changed without an export", **details)
        return
    if not after:
        require(newest.value is None, _NEWEST, "a deleted key is exported with a value", **details)
        return
    if not expected.has_exact_rows:
        return
    require(
        newest.value is not None, _NEWEST, "a key of the table is exported as deleted", **details
    )
    values = expected.values(after)
    require(values is None or newest.value in values, _NEWEST, "an older row", **details)
