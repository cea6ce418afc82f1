"""Operations that add rows: from memory, from files, by a message, by the batcher."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from simulation.model.journal import Ingest, SourceRow
from simulation.model.tables import random_row
from simulation.workload.client import Client, CreatedTable, answered
from simulation.workload.registry import has_table, operation
from simulation.workload.text_files import file_suffix, random_options, write_file
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.ingest.service import ingest_paths, ingest_rows, submit_ingest
from sleeper.ingest_batcher.service import create_ingest_batches, submit_to_batcher
from sleeper.schema.model import Schema
from sleeper.storage.source_options import DEFAULT_OPTIONS

OPERATION_COLUMN = "op"
_ROWS_PER_JOB = (0, 1, 5, 12, 25)
_DELETE_PROBABILITY = 0.2


def make_ingest(
    client: Client, table: CreatedTable, with_deletes: bool = True
) -> tuple[Ingest, Schema]:
    """Returns a new job of random rows, which the journal has, and the schema of the rows."""
    schema = client.schema(table)
    count, now_ms = client.random.choice(_ROWS_PER_JOB), client.instance.clock()
    rows = [random_row(client.random, schema, now_ms) for _ in range(count)]
    deletes = frozenset(
        position
        for position in range(count)
        if table.is_latest and with_deletes and client.random.random() < _DELETE_PROBABILITY
    )
    ingest = Ingest(id=client.new_id("job"), table_id=table.id, rows=rows, deletes=deletes)
    client.journal.ingests[ingest.id] = ingest
    return ingest, schema


def to_arrow(rows: Sequence[SourceRow], schema: Schema) -> pa.Table:
    """Returns the rows in the schema of the table."""
    target = arrow_schema(schema)
    columns = [pa.array([row[f.name] for row in rows], f.type) for f in target]
    return pa.Table.from_arrays(columns, schema=target)


def arrow_rows(table: CreatedTable, ingest: Ingest, schema: Schema) -> pa.Table:
    """Returns the rows of a job, with a column of operations in a table of latest rows."""
    rows = to_arrow(ingest.rows, schema)
    if not table.is_latest:
        return rows
    words = ["d" if place in ingest.deletes else "u" for place in range(len(ingest.rows))]
    return rows.append_column(OPERATION_COLUMN, pa.array(words, pa.string()))


def op_column(table: CreatedTable) -> str | None:
    """Returns the name of the column of operations, None if the table has none."""
    return OPERATION_COLUMN if table.is_latest else None


def put_files(
    client: Client, table: CreatedTable, ingest: Ingest, schema: Schema
) -> tuple[str, ...]:
    """Stores the rows of the job as one or two files, and returns their paths.

    The options of the job say how they are read. Those of a bulk import are Parquet, and have no
    operations.
    """
    random = client.random
    ingest.options = DEFAULT_OPTIONS if ingest.is_bulk else random_options(random)
    rows = to_arrow(ingest.rows, schema) if ingest.is_bulk else arrow_rows(table, ingest, schema)
    count = random.randint(1, 2)
    size = -(-len(rows) // count) or 1
    paths = []
    for number in range(count):
        part = rows.slice(number * size, size)
        name = f"{ingest.id}-{number}{file_suffix(ingest.options)}"
        content = write_file(part, schema, ingest.options, random)
        paths.append(client.put_source(name, content))
    return tuple(paths)


@operation(14)
def ingest_from_memory(client: Client) -> None:
    """Ingests rows in memory, in one or several batches."""
    table = client.choose_table()
    ingest, schema = make_ingest(client, table)
    rows = arrow_rows(table, ingest, schema)
    batches = rows.to_batches(max_chunksize=client.random.choice((3, 100)))
    with answered(ingest):
        result = ingest_rows(
            client.instance, table.name, batches, ingest.id, op_column=op_column(table)
        )
        ingest.acknowledge(result.number)


@operation(5)
def ingest_from_files(client: Client) -> None:
    """Ingests files in this process."""
    table = client.choose_table()
    ingest, schema = make_ingest(client, table)
    ingest.files = put_files(client, table, ingest, schema)
    with answered(ingest):
        _ingest_files(client, table, ingest)


def _ingest_files(client: Client, table: CreatedTable, ingest: Ingest) -> None:
    result = ingest_paths(
        client.instance,
        table.name,
        ingest.files,
        ingest.id,
        op_column=op_column(table),
        options=ingest.options,
    )
    ingest.acknowledge(result.number)


@operation(4)
def ingest_by_message(client: Client) -> None:
    """Sends a job of files to the ingest queue, sometimes twice."""
    table = client.choose_table()
    ingest, schema = make_ingest(client, table)
    ingest.files = put_files(client, table, ingest, schema)
    with answered(ingest):
        for _ in range(client.random.choice((1, 1, 2))):
            submit_ingest(
                client.instance,
                table.name,
                ingest.files,
                ingest.id,
                op_column(table),
                ingest.options,
            )
            ingest.accept()


def _with_invalid_row(rows: pa.Table) -> pa.Table:
    """Returns the rows and one more, which has no key."""
    nullable = pa.schema([each.with_nullable(True) for each in rows.schema])
    invalid = pa.table([pa.nulls(1, each.type) for each in nullable], schema=nullable)
    return pa.concat_tables([rows.cast(nullable), invalid])


@operation(1)
def ingest_invalid(client: Client) -> None:
    """Ingests rows of which one has no key, so that all are refused."""
    table = client.choose_table()
    ingest, schema = make_ingest(client, table)
    rows = _with_invalid_row(arrow_rows(table, ingest, schema))
    with answered(ingest):
        result = ingest_rows(
            client.instance,
            table.name,
            rows.to_batches(max_chunksize=4),
            ingest.id,
            op_column=op_column(table),
        )
        ingest.acknowledge(result.number)


@operation(1)
def ingest_with_rejects(client: Client) -> None:
    """Ingests a file of which one row has no key, without that row."""
    table = client.choose_table()
    ingest, schema = make_ingest(client, table)
    content = io.BytesIO()
    pq.write_table(_with_invalid_row(arrow_rows(table, ingest, schema)), content)
    path = client.put_source(f"{ingest.id}.parquet", content.getvalue())
    with answered(ingest):
        result = ingest_paths(
            client.instance,
            table.name,
            [path],
            ingest.id,
            Rejects(io.StringIO()),
            op_column=op_column(table),
        )
        ingest.acknowledge(result.number)


def _jobs_of_files(client: Client) -> list[Ingest]:
    jobs = client.journal.ingests.values()
    return [each for each in jobs if each.files and not each.is_bulk]


def _has_files_of_job(client: Client) -> bool:
    return has_table(client) and bool(_jobs_of_files(client))


@operation(2, _has_files_of_job)
def repeat_ingest(client: Client) -> None:
    """Runs a job of files again, as a client does that has not learned its outcome."""
    ingest = client.random.choice(_jobs_of_files(client))
    tables = [each for each in client.catalogue.active() if each.id == ingest.table_id]
    for table in tables:
        with answered(ingest):
            _ingest_files(client, table, ingest)


@operation(2)
def ingest_by_batcher(client: Client) -> None:
    """Submits a file to the batcher, which chooses the job."""
    table = client.choose_table()
    schema, now_ms = client.schema(table), client.instance.clock()
    rows = [random_row(client.random, schema, now_ms) for _ in range(client.random.randint(1, 8))]
    content, name = io.BytesIO(), f"{client.new_id('file')}.parquet"
    pq.write_table(to_arrow(rows, schema), content)
    client.journal.files[name] = rows
    submit_to_batcher(client.instance, table.name, [client.put_source(name, content.getvalue())])
    client.journal.accepted_files[name] = table.id


@operation(2, is_background=True)
def create_batches(client: Client) -> None:
    """Sends the due jobs of the batcher for a table."""
    ref = client.instance.tables.index.find(client.choose_table().name)
    create_ingest_batches(client.instance, ref)
