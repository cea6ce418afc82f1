"""The physical removal of one deleted key from a table of many files."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.measuring import Task, Watch, peaks_mib, rates, run_by_turns
from benchmarks.result import OURS, Result, check, figure
from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.deletion.keys import delete_rows
from sleeper.ingest.service import ingest_rows
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import key_region
from sleeper.purging.service import purge_table
from sleeper.schema.model import schema_to_json
from tests.remnants import find_remnants

ROWS = 10_000_000
FILES = 20
_SEED = 5_000


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    arguments = {"folder": str(settings.folder / "purge"), "rows_each": rows // FILES}
    runs = run_by_turns({OURS: Task(__name__, "ours", arguments)}, settings.repeats)[OURS]
    work = (
        f"{FILES} files of {rows // FILES:,} rows with random keys in one leaf; one key is deleted"
        " → purged: every file is rewritten, its old one, the log and the older state are gone."
    )
    figures = (
        figure("purge", [each.seconds for each in runs], "s"),
        figure("rewritten", rates(rows, runs), "M rows/s"),
        figure("peak", peaks_mib(runs), "MiB"),
    )
    return Result("purge", work, figures)


def ours(watch: Watch, folder: str, rows_each: int) -> None:
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    create_local_instance(place, "purge")
    instance = open_local_instance(place)
    settings = {"sleeper.table.gc.delay.minutes": "0"}
    create_table(instance, "rows", schema_to_json(SCHEMA), settings)
    for number in range(FILES):
        rows = random_rows(rows_each, _SEED + number)
        ingest_rows(instance, "rows", rows.to_batches(), f"ingest-{number}")
    key, value = rows["key"][0].as_py(), rows["value"][0].as_py()
    delete_rows(instance, "rows", [key_region(SCHEMA, [key])])
    with watch:
        report = purge_table(instance, "rows")
    check(report.is_complete, f"something is kept: {report}")
    with instance.table("rows").state.reading() as state:
        check(state.files.totals().rows == FILES * rows_each - 1, "rows are missing")
    instance.close()
    paths = [path for path in place.rglob("*") if path.is_file()]
    others = [(str(path), path.read_bytes()) for path in paths if path.suffix != ".parquet"]
    for text in (key, value):
        check(find_remnants(others, text) == [], f"{text} is still in an object")
    for path in paths:
        if path.suffix == ".parquet":
            _check_parquet(path, key, value)
    shutil.rmtree(place)


def _check_parquet(path: Path, key: str, value: str) -> None:
    content: pa.Table = pq.read_table(path)
    for name, text in (("key", key), ("value", value)):
        check(not pc.any(pc.equal(content[name], text)).as_py(), f"{path} has {text}")
