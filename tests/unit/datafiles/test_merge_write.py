"""The engine's writer of a merge, compared with the streaming writer."""

import os
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.plan import merge, merge_plan
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.datafiles.sidecars import key_filter_builder
from sleeper.datafiles.sidecars.key_filter import hashed_keys, key_filter_from_bytes
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.datafiles.write import engine_file, merged
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.merged import KeyTap, write_merge
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.errors import DataError, StateMovedOnError, UnavailableError
from sleeper.files import (
    CHECKSUM_SUFFIX,
    FILTER_SUFFIX,
    SIDECAR_SUFFIXES,
    DataFile,
    parse_run_start,
)
from sleeper.partitions.partition import tree_from_split_points
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations, parse_filters
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema
from sleeper.storage.location import DataRoot
from tests.examples import examples
from tests.tables.pages import values_by_page

P = PrimitiveType
SCHEMA = Schema(
    (Field("Key A", P.STRING), Field("a.b", P.INT)),
    (Field("t", P.LONG),),
    (
        Field("v", P.BYTE_ARRAY, nullable=True),
        Field("tags", ListType(P.STRING), nullable=True),
        Field("counts", MapType(P.STRING, P.LONG)),
        Field("at", P.TIMESTAMP, nullable=True),
    ),
)
NUMBERS = Schema((Field("key", P.LONG),), (), (Field("v", P.STRING), Field("kind", P.STRING)))
START_MS = 1_700_000_000_000

long_or_short = st.sampled_from(["", "a", "ab", "é", "z\0", "𝄞", "x" * 40, "y" * 13])
rows_strategy = st.lists(
    st.tuples(
        long_or_short,
        st.integers(-2, 2),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.binary(max_size=20),
        st.none() | st.lists(long_or_short, max_size=2),
        st.dictionaries(long_or_short, st.integers(-9, 9), max_size=2).map(lambda d: [*d.items()]),
        st.none()
        | st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    min_size=1,
    max_size=30,
)
Rows = list[tuple[Any, ...]]


def make_table(schema: Schema, rows: Rows) -> pa.Table:
    kinds = arrow_schema(schema)
    columns = zip(*sorted(rows, key=lambda r: r[: len(schema.keys)]), strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, schema=kinds)


def written_inputs(folder: Path, schema: Schema, files: list[Rows]) -> tuple[MergeInput, ...]:
    inputs = []
    for number, rows in enumerate(files):
        writer = DataFileWriter(DataRoot(folder), f"in-{number}.parquet", schema, FileSettings())
        writer.write(make_table(schema, rows).to_batches())
        file = writer.finish()
        inputs.append(MergeInput(str(folder / file.path), bytes=file.bytes))
    return tuple(inputs)


def engine(folder: Path) -> EngineSettings:
    (folder / "spill").mkdir(exist_ok=True)
    return EngineSettings(folder / "spill")


def target(folder: Path, schema: Schema, **changes: Any) -> WriteTarget:
    leaves = tree_from_split_points(schema, [])
    return WriteTarget(DataRoot(folder), "t", schema, leaves, START_MS, FileSettings(**changes))


def numbers(folder: Path, rows: int, files: int = 2, value: str = "v") -> MergeRequest:
    parts = [[(k, value, "kind") for k in range(n, rows, files)] for n in range(files)]
    return MergeRequest(NUMBERS, written_inputs(folder, NUMBERS, parts))


@pytest.fixture
def by_engine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the rows were streamed")

    monkeypatch.setattr(merged, "write_sorted", never)


def files_below(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


@pytest.mark.usefixtures("by_engine_only")
@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    st.lists(rows_strategy, min_size=1, max_size=4), st.integers(1, 20), st.sampled_from([0, 14])
)
def test_engine_and_streaming_writer_write_equal_files(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[Rows],
    group_rows: int,
    bits: int,
) -> None:
    folder = tmp_path_factory.mktemp("merge [a]* ?é%20")
    request = MergeRequest(SCHEMA, written_inputs(folder, SCHEMA, files))
    group_rows = min(group_rows, sum(map(len, files)))
    changes = {"row_group_rows_max": group_rows, "filter_bits_per_key": bits}
    row_counts: list[int] = []
    file = write_merge(
        request, engine(folder), target(folder / "a", SCHEMA, **changes), row_counts.append
    )
    (streamed,) = write_sorted(
        merge(request, engine(folder)),
        target(folder / "b", SCHEMA, **changes),
        FileStrategy.ONE_FILE_PER_LEAF,
    )
    assert file is not None
    assert sum(row_counts) == file.rows == streamed.file.rows
    assert (file.smallest_key, file.largest_key) == (
        streamed.file.smallest_key,
        streamed.file.largest_key,
    )
    assert file.sidecars == streamed.file.sidecars
    assert file.sidecars[-1] == CHECKSUM_SUFFIX
    for suffix in file.sidecars[:-1]:
        ours, theirs = (
            (folder / place / path).with_name(Path(path).name + suffix).read_bytes()
            for place, path in (("a", file.path), ("b", streamed.file.path))
        )
        assert ours == theirs
    ours, theirs = (folder / "a" / file.path, folder / "b" / streamed.file.path)
    assert pq.read_table(ours).equals(pq.read_table(theirs))
    assert pq.read_schema(ours) == arrow_schema(SCHEMA)
    assert pq.read_metadata(ours).row_group(0).num_rows == group_rows
    assert file.bytes == ours.stat().st_size
    assert verify_file(DataRoot(folder / "a"), SCHEMA, ExpectedFile(file)) == []


@pytest.mark.usefixtures("by_engine_only")
def test_filter_of_many_ranges_passes_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_filter_builder, "_RANGE_KEYS", 5000)
    monkeypatch.setattr(merged, "_ROWS_PER_TURN", 1)
    keys = sorted((f"{n % 97}\0{'x' * (n % 20)}"[: n % 14], n // 50) for n in range(20_000))
    rows: Rows = [(*key, 0, None, None, [], None) for key in keys]
    request = MergeRequest(SCHEMA, written_inputs(tmp_path, SCHEMA, [rows[::2], rows[1::2]]))
    file = write_merge(request, engine(tmp_path), target(tmp_path, SCHEMA))
    assert file is not None
    root = DataRoot(tmp_path)
    key_filter = key_filter_from_bytes(root.read(file.path + FILTER_SUFFIX), "f")
    assert len(key_filter.ranges) == 3  # of batches of 8,192 rows
    assert key_filter.keys == len(set(keys))
    assert key_filter.may_hold(hashed_keys(SCHEMA, keys)).all()
    assert verify_file(root, SCHEMA, ExpectedFile(file)) == []


@pytest.mark.usefixtures("by_engine_only")
def test_maps_have_the_names_of_parquet_and_the_codec_of_the_table(tmp_path: Path) -> None:
    rows: Rows = [("a", n, 0, None, ["b"], [("c", n)], None) for n in range(50)]
    request = MergeRequest(SCHEMA, written_inputs(tmp_path, SCHEMA, [rows]))
    changes = {"row_group_rows_max": 50, "compression_codec": "snappy"}
    file = write_merge(request, engine(tmp_path), target(tmp_path / "out", SCHEMA, **changes))
    assert file is not None
    group = pq.read_metadata(tmp_path / "out" / file.path).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    nested = {c.path_in_schema: c.compression for c in columns if c.path_in_schema.count(".") > 1}
    assert nested == {
        "tags.list.tags": "SNAPPY",
        "counts.key_value.key": "SNAPPY",
        "counts.key_value.value": "SNAPPY",
    }


def test_tap_is_above_a_merge_without_sort(tmp_path: Path) -> None:
    request = numbers(tmp_path, 100, files=3)
    with merge_plan(request, engine(tmp_path)) as plan:
        tap = KeyTap(NUMBERS, FileSettings().key_facts(NUMBERS), lambda _: None)
        steps = tap.above(plan.frame).execution_plan().display_indent().splitlines()
    assert steps[0].startswith("FilterExec: tap(")
    assert steps[1].strip().startswith("SortPreservingMergeExec")
    assert "SortExec" not in "".join(steps)


@pytest.mark.usefixtures("by_engine_only")
def test_written_rows_are_aggregated_and_filtered(tmp_path: Path) -> None:
    schema = Schema((Field("key", P.LONG),), (), (Field("n", P.LONG),))
    inputs = written_inputs(tmp_path, schema, [[(k, 1) for k in range(50)]] * 3)
    step = ProcessingStep(Processing((), parse_aggregations("sum(n)")), START_MS)
    request = MergeRequest(schema, inputs, steps=(step,))
    file = write_merge(request, engine(tmp_path), target(tmp_path, schema, row_group_rows_max=10))
    assert file is not None
    assert pq.read_table(tmp_path / file.path).to_pydict() == {
        "key": [*range(50)],
        "n": [3] * 50,
    }


def test_no_rows_write_no_file(tmp_path: Path) -> None:
    schema = Schema((Field("key", P.LONG),), (), (Field("at", P.TIMESTAMP),))
    inputs = written_inputs(tmp_path, schema, [[(1, datetime(1990, 1, 1, tzinfo=UTC))]])
    step = ProcessingStep(Processing(parse_filters("ageOff(at,1000)"), ()), START_MS)
    request = MergeRequest(schema, inputs, steps=(step,))
    assert write_merge(request, engine(tmp_path), target(tmp_path / "out", schema)) is None
    assert files_below(tmp_path / "out") == []


@pytest.mark.usefixtures("by_engine_only")
def test_file_has_the_layout_of_the_settings(tmp_path: Path) -> None:
    rows = [[(k, f"{k:010d}", "ab"[k % 2]) for k in range(n, 60_000, 2)] for n in range(2)]
    request = MergeRequest(NUMBERS, written_inputs(tmp_path, NUMBERS, rows))
    file = write_merge(
        request, engine(tmp_path), target(tmp_path, NUMBERS, row_group_bytes=800_000)
    )
    assert file is not None
    footer = pq.ParquetFile(tmp_path / file.path).metadata
    first = footer.row_group(0)
    assert 15_000 < first.num_rows < 30_000
    assert footer.num_row_groups == -(-60_000 // first.num_rows)
    assert ["RLE_DICTIONARY" in first.column(c).encodings for c in range(3)] == [False, False, True]
    assert [c.column_index for c in first.sorting_columns] == [0]
    assert [first.column(c).compression for c in range(3)] == ["UNCOMPRESSED", "ZSTD", "ZSTD"]
    assert all(first.column(c).has_offset_index for c in range(3))
    pages = [values_by_page(tmp_path / file.path, 0, column) for column in range(3)]
    assert pages[0] == pages[1] == pages[2] == [512] * (first.num_rows // 512)


@pytest.mark.usefixtures("by_engine_only")
def test_pages_of_scans_are_limited_by_bytes(tmp_path: Path) -> None:
    rows = [[(k, f"{k:030d}", "a") for k in range(40_000)]]
    request = MergeRequest(NUMBERS, written_inputs(tmp_path, NUMBERS, rows))
    changes = {"page_rows_max": 20_000, "page_bytes": 65_536, "row_group_bytes": 1024**2}
    file = write_merge(request, engine(tmp_path), target(tmp_path, NUMBERS, **changes))
    assert file is not None
    pages = values_by_page(tmp_path / file.path, 0, 1)
    assert 65_536 / 34 <= max(pages) <= 65_536 / 30 + 1_024


def test_few_or_uneven_rows_use_the_streaming_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the engine wrote them")

    monkeypatch.setattr(merged, "_write_by_engine", never)
    few = write_merge(numbers(tmp_path, 100), engine(tmp_path), target(tmp_path, NUMBERS))
    assert few
    assert few.rows == 100
    wide = [
        [(k, "v", "") for k in range(10_001)],
        [(k, f"{k:08d}" * 1_000, "") for k in range(10_001, 10_101)],
    ]
    request = MergeRequest(NUMBERS, written_inputs(tmp_path / "wide", NUMBERS, wide))
    monkeypatch.setattr(merged, "ROW_GROUP_BYTES_MAX", 4 * 1024**2)
    uneven = write_merge(
        request, engine(tmp_path), target(tmp_path, NUMBERS, row_group_rows_max=10_000)
    )
    assert uneven
    assert uneven.rows == 10_101


@pytest.mark.usefixtures("by_engine_only")
def test_progress_callback_can_stop_the_write(tmp_path: Path) -> None:
    def stop(rows: int) -> None:
        raise StateMovedOnError(f"no more after {rows}")

    request = numbers(tmp_path, 60_000)
    with pytest.raises(StateMovedOnError, match="no more after"):
        write_merge(
            request,
            engine(tmp_path),
            target(tmp_path / "out", NUMBERS, row_group_rows_max=1000),
            stop,
        )
    assert files_below(tmp_path / "out") == []


@pytest.mark.usefixtures("by_engine_only")
def test_unfinished_file_is_synced_while_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if the engine writes to another temporary name: adapt EarlySync."""
    synced: list[str] = []
    monkeypatch.setattr(engine_file, "_SYNC_BYTES", 1)
    monkeypatch.setattr(engine_file, "_SYNC_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(
        engine_file.os,
        "fdatasync",
        lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")),
    )

    def wait(_: int) -> None:
        if not synced:
            time.sleep(0.005)

    # The engine writes parts of 10 MiB.
    random = Random(1)
    rows = [(key, random.randbytes(250).hex(), "kind") for key in range(45_000)]
    request = MergeRequest(NUMBERS, written_inputs(tmp_path, NUMBERS, [rows]))
    file = write_merge(request, engine(tmp_path), target(tmp_path / "out", NUMBERS), wait)
    assert file is not None
    assert synced
    assert all(name.startswith(str(tmp_path / "out" / file.path) + "#") for name in synced)


@pytest.mark.usefixtures("by_engine_only")
@pytest.mark.parametrize("what_is_left", [None, b""])
def test_input_deleted_before_the_write_raises(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what_is_left: bytes | None,
) -> None:
    request = numbers(tmp_path, 60_000)

    def gone(*_: Any) -> bool:
        Path(request.inputs[1].url).unlink()
        if what_is_left is not None:
            Path(request.inputs[1].url).write_bytes(what_is_left)
        return True

    monkeypatch.setattr(merged, "_is_even", gone)
    with pytest.raises(StateMovedOnError if what_is_left is None else DataError):
        write_merge(
            request, engine(tmp_path), target(tmp_path / "out", NUMBERS, row_group_rows_max=1000)
        )
    assert files_below(tmp_path / "out") == []


def test_input_deleted_before_its_footer_is_read_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = numbers(tmp_path, 60_000)
    looked_at = merged._is_even

    def gone(*arguments: Any) -> bool:
        Path(request.inputs[1].url).unlink()
        return looked_at(*arguments)

    monkeypatch.setattr(merged, "_is_even", gone)
    with pytest.raises(StateMovedOnError, match="missing"):
        write_merge(
            request, engine(tmp_path), target(tmp_path / "out", NUMBERS, row_group_rows_max=1000)
        )
    assert files_below(tmp_path / "out") == []


def test_empty_batches_pass_the_tap() -> None:
    tap = KeyTap(NUMBERS, FileSettings().key_facts(NUMBERS), lambda _: None)
    with tap:
        for keys in ([1, 2], [], [3]):
            output = tap.take(pa.array(keys, pa.int64()), pa.array(keys, pa.int64()))
            assert output.to_pylist() == [True] * len(keys)
    assert tap.facts.bounds() == ((1,), (3,))


@pytest.mark.usefixtures("by_engine_only")
def test_existing_file_of_the_same_name_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken.parquet").write_text("others' rows")
    monkeypatch.setattr(merged, "new_data_path", lambda *_: "taken.parquet")
    with pytest.raises(UnavailableError, match="taken"):
        write_merge(
            numbers(tmp_path, 100),
            engine(tmp_path),
            target(tmp_path, NUMBERS, row_group_rows_max=10),
        )
    assert (tmp_path / "taken.parquet").read_text() == "others' rows"


def test_files_of_a_killed_writer_have_orphan_names(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from tests.unit.datafiles.test_merge_write import *
        folder = Path({str(tmp_path)!r})
        rows_heard = 0
        def on_rows(rows):
            global rows_heard
            rows_heard += rows
            if rows_heard > 150_000:
                os.kill(os.getpid(), signal.SIGKILL)
        place = target(folder / "out", NUMBERS)
        write_merge(numbers(folder, 200_000), engine(folder), place, on_rows)
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert process.returncode == -9
    left = files_below(tmp_path / "out")
    assert left
    for path in left:
        assert parse_run_start(str(path)) == START_MS
        assert not path.name.endswith(SIDECAR_SUFFIXES)
        # Nobody could take it for a whole file.
        with pytest.raises(pa.ArrowInvalid):
            pq.read_metadata(path)


@pytest.fixture
def root_with_file(tmp_path: Path) -> tuple[DataRoot, DataFile]:
    place = target(tmp_path / "out", NUMBERS, row_group_rows_max=100)
    file = write_merge(numbers(tmp_path, 1000), engine(tmp_path), place)
    assert file is not None
    return place.root, file


@pytest.mark.parametrize("place", [0, 0.2, 0.5, 0.9, 0.999])
def test_any_flipped_bit_is_detected(
    root_with_file: tuple[DataRoot, DataFile], place: float
) -> None:
    root, file = root_with_file
    path = Path(root.url_of(file.path))
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    assert verify_file(root, NUMBERS, ExpectedFile(file))


def test_error_names_the_invalid_checksum(root_with_file: tuple[DataRoot, DataFile]) -> None:
    root, file = root_with_file
    Path(root.url_of(file.path + CHECKSUM_SUFFIX)).write_bytes(b"xxh3-128 12\n")
    (fault,) = verify_file(root, NUMBERS, ExpectedFile(file))
    assert fault.path == file.path + CHECKSUM_SUFFIX
    assert "not a checksum" in fault.fault
