"""Operations that read: queries of keys, versions and times, streams, readers, holds.

What they return is recorded in the journal, and compared when the log is known.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simulation.faults import MetFaults
from simulation.model.journal import Key, LostRead, Pin, Read
from simulation.model.tables import random_key
from simulation.model.values import batch_rows
from simulation.workload.client import Client, CreatedTable, OpenReader, OpenStream
from simulation.workload.registry import has_table, operation
from sleeper.admin.tables import release_hold
from sleeper.api.table import Table
from sleeper.errors import InvalidRequestError, SleeperError, StateMovedOnError
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query, make_key_regions
from sleeper.query.result import QueryResult
from sleeper.query.run import run_query
from sleeper.query.service import make_query_table, open_query
from sleeper.schema.model import Schema
from sleeper.statestore.holds import Hold
from sleeper.statestore.version import PointInTime

_STREAMS_MAX = 3
_READERS_MAX = 2
_HOLD_SECONDS = (5, 5, 60, 3_600, 100_000)
_THINK_SECONDS = (0.0, 2.0, 40.0, 100.0)


def _all_rows(result: QueryResult) -> Counter[tuple[object, ...]]:
    with result:
        return Counter(row for batch in result for row in batch_rows(batch))


def newest_number(client: Client, table: CreatedTable) -> int:
    """Returns the number of the newest version."""
    with client.instance.table(table.name).state.reading() as state:
        return int(state.number)


def random_version(client: Client, table: CreatedTable) -> int:
    """Returns a version that can be read, often the oldest, which a collector may pass next."""
    with client.instance.table(table.name).state.reading() as state:
        oldest, newest = state.oldest_version, state.number
    return client.random.choice((oldest, client.random.randint(oldest, newest)))


def _random_columns(client: Client, schema: Schema) -> tuple[str, ...] | None:
    names = [each.name for each in schema.fields]
    if client.random.random() < 0.5:
        return None
    return tuple(client.random.sample(names, client.random.randint(1, len(names))))


def likely_keys(client: Client, table: CreatedTable, schema: Schema) -> Sequence[Key]:
    """Returns a few keys, most of which were submitted for the table."""
    names = [each.name for each in schema.row_keys]
    jobs = [each for each in client.journal.ingests.values() if each.table_id == table.id]
    keys = [
        tuple(row[name] for name in names)
        for job in client.random.sample(jobs, min(3, len(jobs)))
        for row in job.rows[:2]
    ]
    return keys or [random_key(client.random, schema)]


def _has_unfiltered(client: Client) -> bool:
    return any(each.definition.age_ms is None for each in client.catalogue.active())


@operation(4, _has_unfiltered)
def query_newest(client: Client) -> None:
    """Reads the newest rows, of all keys or a few, without filters that depend on the clock."""
    tables = [each for each in client.catalogue.active() if each.definition.age_ms is None]
    table = client.random.choice(tables)
    schema, first = client.schema(table), client.journal.newest_number(table.id)
    keys = likely_keys(client, table, schema) if client.random.random() < 0.7 else None
    columns = _random_columns(client, schema)
    regions = None if keys is None else make_key_regions(schema, keys)
    rows = _all_rows(open_query(client.instance, table.name, Query(regions, columns)))
    client.journal.reads.append(
        Read(
            table_id=table.id,
            what="query of the newest version",
            first=first,
            last=newest_number(client, table),
            rows=rows,
            keys=None if keys is None else frozenset(keys),
            columns=columns,
            is_of_now=True,
        )
    )


@operation(2)
def query_version(client: Client) -> None:
    """Reads all rows as of a version."""
    table = client.choose_table()
    version = random_version(client, table)
    rows = _all_rows(open_query(client.instance, table.name, Query(version=version)))
    _record(client, table, "query of a version", version, rows)


@operation(2)
def look_up_keys(client: Client) -> None:
    """Reads the rows of a few keys as of a version."""
    table = client.choose_table()
    with client.instance.table(table.name).state.reading() as state:
        version = client.random.randint(state.oldest_version, state.number)
        schema = state.schema_at(version)
    keys = likely_keys(client, table, schema)
    query = Query(make_key_regions(schema, keys), version=version)
    rows = _all_rows(open_query(client.instance, table.name, query))
    _record(client, table, "lookup at a version", version, rows, frozenset(keys))


@operation(1)
def query_time(client: Client) -> None:
    """Reads all rows as of a time."""
    table = client.choose_table()
    with client.instance.table(table.name).state.reading() as state:
        time_ms = state.entry_time_ms(client.random.randint(state.oldest_version, state.number))
        newest_ms, last = state.time_ms, state.number
    point = PointInTime(min(time_ms, newest_ms - 1), "then")
    rows = _all_rows(open_query(client.instance, table.name, Query(version=point)))
    client.journal.reads.append(
        Read(
            table_id=table.id,
            what="query of a time",
            first=1,
            last=last,
            rows=rows,
            time_ms=point.time_ms,
        )
    )


def _record(
    client: Client,
    table: CreatedTable,
    what: str,
    version: int,
    rows: Counter[tuple[object, ...]],
    keys: frozenset[Key] | None = None,
) -> None:
    read = Read(table_id=table.id, what=what, first=version, last=version, rows=rows, keys=keys)
    client.journal.reads.append(read)


def _may_open_stream(client: Client) -> bool:
    return has_table(client) and len(client.streams) < _STREAMS_MAX


@operation(2, _may_open_stream)
def open_stream(client: Client) -> None:
    """Starts a query of a version, whose batches later operations read."""
    table = client.choose_table()
    version, before = random_version(client, table), client.count_faults()
    result = open_query(client.instance, table.name, Query(version=version))
    client.streams.append(OpenStream(table, version, result, _met_since(client, before)))


def _met_since(client: Client, before: MetFaults | None) -> int | None:
    """Returns the faults by which a hold is judged that was created since, if without a fault."""
    now = client.count_faults()
    return None if now is None or now != before else now.beside


@contextmanager
def _keeping(client: Client, opened: OpenStream | OpenReader, version: int) -> Iterator[None]:
    """Records in the journal that a version was lost that the client kept."""
    try:
        yield
    except (InvalidRequestError, StateMovedOnError) as error:
        now = client.count_faults()
        is_kept = now is not None and now.beside == opened.met
        # A query may also be refused because it takes too long.
        is_lost = isinstance(error, StateMovedOnError) or "no longer readable" in str(error)
        if is_kept and is_lost and not opened.table.is_deleted:
            client.journal.lost_reads.append(LostRead(opened.table.id, version, str(error)))
        raise


def _has_stream(client: Client) -> bool:
    return bool(client.streams)


@operation(6, _has_stream)
def read_stream(client: Client) -> None:
    """Reads the next batch of a stream."""
    stream = client.random.choice(client.streams)
    try:
        with _keeping(client, stream, stream.version):
            batch = next(stream.batches, None)
    except BaseException:
        client.streams.remove(stream)
        stream.batches.close()
        raise
    if batch is not None:
        stream.rows.update(batch_rows(batch))
        return
    client.streams.remove(stream)
    _record(client, stream.table, "stream of a version", stream.version, stream.rows)


def _may_open_reader(client: Client) -> bool:
    return has_table(client) and len(client.readers) < _READERS_MAX


@operation(1, _may_open_reader)
def open_reader(client: Client) -> None:
    """Opens a reader, which keeps the newest version."""
    table = client.choose_table()
    before = client.count_faults()
    reader = Table(client.instance, table.name).reader()
    client.readers.append(OpenReader(table, reader, _met_since(client, before)))
    client.note_hold(client.readers[-1])


def _has_reader(client: Client) -> bool:
    return bool(client.readers)


@operation(3, _has_reader)
def use_reader(client: Client) -> None:
    """Reads the rows of a reader's version, refreshes the reader, or closes it."""
    opened = client.random.choice(client.readers)
    action = client.random.choice((*["query"] * 4, "refresh", "close"))
    try:
        if action == "query":
            version = opened.reader.version
            with _keeping(client, opened, version):
                rows = Counter(row for batch in opened.reader.query() for row in batch_rows(batch))
            _record(client, opened.table, "query of a reader", version, rows)
        elif action == "refresh":
            client.forget_hold(opened)
            before = client.count_faults()
            opened.reader.refresh()
            opened.met = _met_since(client, before)
            client.note_hold(opened)
    except SleeperError:
        action = "close"
        raise
    finally:
        if action == "close":
            client.readers.remove(opened)
            client.close_reader(opened)


@operation(2)
def hold_version(client: Client) -> None:
    """Keeps a version from garbage collection for a time."""
    table = client.choose_table()
    store = client.instance.table(table.name).state
    version, hold_id = random_version(client, table), client.new_id("hold")
    expiry_ms = client.instance.clock() + client.random.choice(_HOLD_SECONDS) * 1000
    store.holds.take(Hold(hold_id, "the workload", version, expiry_ms), is_new=True)
    client.journal.pins[hold_id] = Pin(table.id, version, expiry_ms, "the workload")


@operation(2)
def read_held_version(client: Client) -> None:
    """Chooses a version, keeps it some time later, and reads its rows after some more time."""
    table, before = client.choose_table(), client.count_faults()
    version, opened = random_version(client, table), client.instance.table(table.name)
    client.sleep(client.random.choice(_THINK_SECONDS))
    hold = VersionHold(opened.state, version, 3_600, client.instance.clock, "the workload")
    hold.acquire()
    try:
        # The floor moves in this time, or the read gets a hold of its own.
        client.sleep(client.random.choice(_THINK_SECONDS))
        engine = client.instance.queries.engine()
        rows = _all_rows(
            run_query(Query(version=version), make_query_table(opened), engine, is_held=True)
        )
    except (InvalidRequestError, StateMovedOnError) as error:
        has_met_none = before is not None and client.count_faults() == before
        if has_met_none and not table.is_deleted and "no longer readable" in str(error):
            client.journal.lost_reads.append(LostRead(table.id, version, str(error)))
        raise
    finally:
        hold.release()
    _record(client, table, "query of a version that was held", version, rows)


def _has_pin(client: Client) -> bool:
    return bool(client.journal.pins)


@operation(1, _has_pin)
def release_version(client: Client) -> None:
    """Releases a hold of this or another client."""
    hold_id = client.random.choice(list(client.journal.pins))
    pin = client.journal.pins.pop(hold_id)
    for table in client.catalogue.active():
        if table.id == pin.table_id:
            release_hold(client.instance, table.name, hold_id)
            client.journal.released.add(hold_id)
