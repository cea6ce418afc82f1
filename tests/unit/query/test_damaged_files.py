"""Data files with a flipped bit: every query, statement and merge returns the rows or an error."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sleeper.clock import system_clock
from sleeper.compaction.merge_job import MergeJob, write_output
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.datafiles.write import merged
from sleeper.datafiles.write.file import FileSettings
from sleeper.errors import DataError, SleeperError
from sleeper.files import DataFile
from sleeper.processing.model import NO_PROCESSING
from sleeper.query.engine import QueryEngine
from sleeper.query.request import Query, make_key_regions
from sleeper.query.run import run_query
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.seeds import choose_seed
from tests.tables.data_table import DataTable, Row, list_rows, make_engine

SCHEMA = Schema(
    (Field("id", PrimitiveType.LONG),),
    (Field("name", PrimitiveType.STRING),),
    (Field("v", PrimitiveType.LONG),),
)
SETTINGS = FileSettings(row_group_rows_max=100, page_bytes=1024)
ROWS = [(n * 3, f"n{n * 7919 % 100}", n * n) for n in range(300)]
KEY = 450
FLIPS = 150

Read = Callable[[DataTable, QueryEngine], list[Row]]


@dataclass
class DamagedTable:
    """A table of one file, of which a bit can be flipped."""

    table: DataTable
    file: DataFile

    def __post_init__(self) -> None:
        self.path = Path(self.table.root.url_of(self.file.path))
        self.content = self.path.read_bytes()

    def flip(self, bit: int) -> None:
        changed = bytearray(self.content)
        changed[bit // 8] ^= 1 << bit % 8
        self.path.write_bytes(changed)

    def mend(self) -> None:
        self.path.write_bytes(self.content)


@pytest.fixture(params=["arrow", "engine"])
def damaged_table(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DamagedTable:
    """Returns a table whose file Arrow wrote, as in ingest, or the engine, as in compaction."""
    table = DataTable(tmp_path, SCHEMA, file_settings=SETTINGS)
    if request.param == "engine":
        table.add_rows(ROWS[::2])
        table.add_rows(ROWS[1::2])
        with monkeypatch.context() as context:
            context.setattr(merged, "write_sorted", None)
            output = merge_all_files(table, make_engine(tmp_path))
        assert output is not None
        table.replace_files(output)
    else:
        table.add_rows(ROWS)
    (file,) = list_files(table)
    return DamagedTable(table, file)


def list_files(table: DataTable) -> list[DataFile]:
    with table.store.reading() as state:
        return list(state.files.all())


def merge_all_files(table: DataTable, engine: QueryEngine) -> DataFile | None:
    """The output of a compaction of all files."""
    (leaf,) = table.leaves()
    step = ProcessingStep(NO_PROCESSING, 0)
    job = MergeJob("table", table.schema, leaf, tuple(list_files(table)), system_clock(), step)
    return write_output(job, table.root, engine.settings.engine, SETTINGS)


def read_by_query(table: DataTable, engine: QueryEngine) -> list[Row]:
    return list_rows(run_query(Query(), table.query_table, engine).read_all())


def read_by_key(table: DataTable, engine: QueryEngine) -> list[Row]:
    query = Query(make_key_regions(SCHEMA, [(KEY,)]))
    return list_rows(run_query(query, table.query_table, engine).read_all())


def read_by_sql(table: DataTable, engine: QueryEngine) -> list[Row]:
    statement = "SELECT * FROM t ORDER BY id"
    return list_rows(run_sql(statement, {"t": lambda: table.query_table}, engine).read_all())


def read_by_compaction(table: DataTable, engine: QueryEngine) -> list[Row]:
    output = merge_all_files(table, engine)
    if output is None:
        return []
    result = pq.read_table(table.root.url_of(output.path))
    table.root.delete([output.path, *(output.path + suffix for suffix in output.sidecars)])
    return list_rows(result)


READS: dict[str, tuple[Read, list[Row]]] = {
    "query": (read_by_query, ROWS),
    "key": (read_by_key, [row for row in ROWS if row[0] == KEY]),
    "sql": (read_by_sql, ROWS),
    "compaction": (read_by_compaction, ROWS),
}


@pytest.mark.parametrize("read_kind", READS)
def test_flipped_bit_raises_an_error_or_returns_the_rows(
    damaged_table: DamagedTable, tmp_path: Path, read_kind: str
) -> None:
    seed = choose_seed()
    read, expected = READS[read_kind]
    wrong: list[int] = []
    errors: list[str] = []
    for bit in random.Random(seed).sample(range(8 * len(damaged_table.content)), FLIPS):
        damaged_table.flip(bit)
        try:
            if (
                read(damaged_table.table, make_engine(tmp_path, verifies_checksums=True))
                != expected
            ):
                wrong.append(bit)
        except SleeperError as error:
            if not isinstance(error, DataError) or damaged_table.file.path not in str(error):
                errors.append(f"{bit}: {error!r}")
    assert (wrong, errors) == ([], [])
    damaged_table.mend()
    assert read(damaged_table.table, make_engine(tmp_path, verifies_checksums=True)) == expected


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id, name, v FROM t",
        "SELECT sum(v) FROM t",
        "SELECT count(*) FROM t",
        "SELECT v FROM t WHERE id = 450",
        "SELECT max(name) FROM t WHERE v > 1000",
    ],
)
def test_statements_over_a_local_file_with_a_flipped_bit_are_refused(
    damaged_table: DamagedTable, tmp_path: Path, statement: str
) -> None:
    table = damaged_table.table
    flipped = random.Random(choose_seed()).sample(range(8 * len(damaged_table.content)), 60)
    for bit in flipped:
        damaged_table.flip(bit)
        with pytest.raises(DataError, match=damaged_table.file.path):
            run_sql(statement, {"t": lambda: table.query_table}, make_engine(tmp_path)).read_all()
    damaged_table.mend()
    run_sql(statement, {"t": lambda: table.query_table}, make_engine(tmp_path)).read_all()


def test_errors_name_the_damaged_file_with_and_without_verification(
    damaged_table: DamagedTable, tmp_path: Path
) -> None:
    seed = choose_seed()
    errors: list[str] = []
    for bit in random.Random(seed).sample(range(8 * len(damaged_table.content)), FLIPS // 2):
        damaged_table.flip(bit)
        try:
            read_by_sql(damaged_table.table, make_engine(tmp_path))
        except SleeperError as error:
            if not isinstance(error, DataError) or damaged_table.file.path not in str(error):
                errors.append(f"{bit}: {error!r}")
    assert errors == []
