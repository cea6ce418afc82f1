"""The change feed: a follower of many small ingests, beside the ingests themselves."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import Measured, Task, Watch, peaks_mib, rates, run_by_turns
from benchmarks.result import OURS, Aim, Result, check, figure, ratios
from benchmarks.rows import random_rows
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.changes.reader import ChangesRequest
from sleeper.query.changes.service import open_changes
from sleeper.schema.model import schema_to_json

ROWS = 10_000_000
_ROWS_EACH = 10_000
_SEED = 6_000


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    arguments = {"folder": str(settings.folder / "changes"), "ingests": rows // _ROWS_EACH}
    # A follower reads the table of the last ingests, which remains in the folder.
    tasks = {"ingest": Task(__name__, "ingest", arguments), OURS: Task(__name__, "ours", arguments)}
    runs = run_by_turns(tasks, settings.repeats)

    def seconds(each: list[Measured]) -> list[float]:
        return [run.seconds for run in each]

    figures = (
        figure("follower", rates(rows, runs[OURS]), "M rows/s"),
        figure("ingests", rates(rows, runs["ingest"]), "M rows/s"),
        figure(
            "rate of the follower over that of the ingests",
            ratios(seconds(runs["ingest"]), seconds(runs[OURS])),
            "x",
            Aim(1),
        ),
        figure("peak of the follower", peaks_mib(runs[OURS]), "MiB"),
    )
    work = (
        f"{rows // _ROWS_EACH:,} ingests of {_ROWS_EACH:,} rows with random keys, one after another"
        " in one process; then a follower that reads them from the first on, as Arrow batches in"
        " key order, and records its progress."
    )
    return Result("changes", work, figures)


def ingest(watch: Watch, folder: str, ingests: int) -> None:
    place = Path(folder)
    shutil.rmtree(place, ignore_errors=True)
    create_local_instance(place, "changes")
    batches = random_rows(_ROWS_EACH, _SEED).to_batches()
    with _opened(place) as instance:
        create_table(instance, "rows", schema_to_json(SCHEMA))
        with watch:
            for number in range(ingests):
                ingest_rows(instance, "rows", iter(batches), f"ingest-{number}")


def ours(watch: Watch, folder: str, ingests: int) -> None:
    with _opened(Path(folder)) as instance:
        rows = 0
        numbers = set()
        request = ChangesRequest(follower=uuid.uuid4().hex)
        with watch, open_changes(instance, "rows", request) as changes:
            for change in changes:
                rows += change.rows.num_rows
                numbers.add(change.number)
        positions = {f.name: f.position for f in instance.table("rows").state.followers()}
    check(rows == ingests * _ROWS_EACH, f"{rows} rows were read of {ingests * _ROWS_EACH}")
    check(len(numbers) == ingests, f"{len(numbers)} transactions were read of {ingests}")
    check(positions[str(request.follower)] >= max(numbers), "the progress is not recorded")


@contextmanager
def _opened(place: Path) -> Iterator[Instance]:
    instance = open_local_instance(place)
    try:
        yield instance
    finally:
        instance.close()
