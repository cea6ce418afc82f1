"""Creation of compaction jobs over many partitions, with log and tracker on a DynamoDB server."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.dynamo import dynamo_instance
from benchmarks.measuring import Task, Watch, peaks_mib, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.compaction.plan import create_compaction_jobs
from sleeper.files import DataFile, new_data_path
from sleeper.instance import Instance
from sleeper.partitions.partition import Partition
from sleeper.schema.model import schema_to_json
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.tables import TableId

_PARTITIONS = 65_536
_FILES_PER_PARTITION = 4
_FILES_PER_ENTRY = 10_000
_SECONDS_MAX = 60.0


def measure(settings: Settings) -> Result:
    partitions = settings.rows or _PARTITIONS
    arguments = {"folder": str(settings.folder / "job-creation"), "partitions": partitions}
    runs = run_by_turns({"ours": Task(__name__, "ours", arguments)}, settings.repeats)["ours"]
    figures = (
        figure("jobs created", [r.seconds for r in runs], "s", Aim(_SECONDS_MAX, is_most=True)),
        figure("a second", [partitions / r.seconds for r in runs], "jobs/s"),
        figure("peak", peaks_mib(runs), "MiB"),
    )
    work = (
        f"A table of {partitions:,} leaves of {_FILES_PER_PARTITION} files each: one job for each"
        " leaf is selected, assigned by entries of the log, made a message, and recorded in the"
        " job tracker. Log and tracker are on a DynamoDB server (dynoxide) of the same machine;"
        " the queue is left out."
    )
    return Result("job-creation", work, figures)


def ours(watch: Watch, folder: str, partitions: int) -> dict[str, Any]:
    with dynamo_instance(Path(folder)) as instance:
        table_id = _make_table(instance, partitions)
        messages: list[str] = []
        store = instance.tables.state(table_id)
        properties = instance.tables.properties.read(table_id)
        with watch:
            report = create_compaction_jobs(
                table_id, store, properties, instance.jobs.tracker, messages.extend, instance.clock
            )
        check(report.created == len(messages) == partitions, f"{report.created} jobs were created")
        with store.reading() as state:
            assigned = Counter(job.partition_id for job in state.jobs.assigned())
        check(len(assigned) == partitions, f"jobs are on {len(assigned)} leaves")
        recent = instance.jobs.tracker.recent(limit=10)
        check(len(recent) == 10, f"{len(recent)} of 10 jobs are in the tracker")
    shutil.rmtree(folder, ignore_errors=True)
    return {}


def _make_table(instance: Instance, partitions: int) -> TableId:
    cuts = [step * 26**5 // partitions for step in range(1, partitions)]
    points = ["".join(chr(97 + cut // 26**i % 26) for i in (4, 3, 2, 1, 0)) for cut in cuts]
    settings = {"sleeper.table.compaction.files.batch.size": str(_FILES_PER_PARTITION)}
    ref = create_table(instance, "table", schema_to_json(SCHEMA), settings, points)
    store = instance.tables.state(ref.id)
    with store.reading() as state:
        leaves = list(state.partitions.leaves())
    check(len(leaves) == partitions, f"there are {len(leaves)} leaves")
    files = [_new_file(ref.id, leaf) for leaf in leaves for _ in range(_FILES_PER_PARTITION)]
    for start in range(0, len(files), _FILES_PER_ENTRY):
        _add(store, files[start : start + _FILES_PER_ENTRY], f"job{start}")
    return ref.id


def _add(store: StateStore, files: list[NewFile], job_id: str) -> None:
    store.commit_or_raise(AddFiles(job_id, system_clock(), tuple(files)))


def _new_file(table_id: TableId, leaf: Partition) -> NewFile:
    within = leaf.region.ranges[0]
    low = str(within.min)
    path = new_data_path(table_id, leaf.id, system_clock())
    return NewFile(DataFile(path, 1000, 20_000, (low,), (low,)), ((leaf.id, 1000),))
