"""Roots that another instance writes to, or whose files are deleted while a stash is made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sleeper.errors import DataError, StateMovedOnError
from sleeper.stash import Stash
from sleeper.stash.control import control_stashes
from sleeper.stash.finish import claim_root, complete_stash, hold_owner
from sleeper.stash.planning import plan_stash, read_task
from sleeper.stash.record import Decision, Outcome, StashRecord, StashRequest
from sleeper.stash.record_index import StashRecords
from sleeper.stash.run import make_stash
from sleeper.stash.start import start_stash
from sleeper.stash.task import TaskWriter
from tests.unit.stash.conftest import SCHEMA, Stasher
from tests.unit.stash.test_recovery import holds, keys, run_workers, start
from tests.unit.stash.test_run import ingest, rows

LATER = "2030-01-01-00-00-00"


def start_both(stasher: Stasher, other: Stasher) -> tuple[StashRecord, StashRecord]:
    """Starts stashes of one name at one destination by two instances, as by schedules."""
    records = []
    for each in (stasher, other):
        each.instance.create_table("a", SCHEMA).ingest(rows(1, 2))
        request = StashRequest(stasher.destination, submitted=True)
        records.append(start_stash(each.ports(), request, LATER))
    return records[0], records[1]


def test_of_two_instances_one_makes_the_stash_of_a_name(stasher: Stasher, tmp_path: Path) -> None:
    """Their ids are equal, as those of folders with equal names may be."""
    other = Stasher(tmp_path / "other")
    with other.instance:
        _, lost = start_both(stasher, other)
        for each in (stasher, other):
            control_stashes(each.ports())
        assert run_workers(other) == 0
        assert run_workers(stasher) == 1
        assert control_stashes(stasher.ports()).completed == (LATER,)
        assert keys(stasher, LATER) == [1, 2]
        decision = lost.decision()
        assert decision is not None
        assert decision.outcome is Outcome.FAILED
        assert "by another instance" in str(decision.reason)
        assert holds(other) == 0
        # The root stays complete if the loser tries again.
        with pytest.raises(StateMovedOnError, match="another instance"):
            claim_root(other.ports(), lost)
        names = {path.name for path in Path(stasher.destination, LATER).iterdir()}
        assert names == {"a", "_TABLES", "_SUCCESS"}


def test_rows_of_another_instance_are_never_in_a_complete_stash(
    stasher: Stasher, tmp_path: Path
) -> None:
    """Both took the root at the same time, as file systems without conditional writes allow."""
    other = Stasher(tmp_path / "other")
    with other.instance:
        records = start_both(stasher, other)
        owner = Path(stasher.destination, LATER, "_TABLES")
        for each, record in zip((stasher, other), records, strict=True):
            make_tasks(each, record)
            owner.unlink()
        claim_root(stasher.ports(), records[0])
        report = control_stashes(stasher.ports())
        assert report.failed == (LATER,)
        assert "was written by another instance" in report.problems[0]
        assert not (Path(stasher.destination) / LATER / "_SUCCESS").exists()


def make_tasks(stasher: Stasher, record: StashRecord) -> None:
    """Plans a stash and does its tasks in this process."""
    ports = stasher.ports()
    writer = TaskWriter(ports, record)
    for version in plan_stash(ports, record, hold_owner(ports, record)):
        for task in record.progress()[version.id].unfinished:
            writer.write(version, task)


def delete_file(root: Path) -> None:
    next(iter(root.glob("a/*.gz"))).unlink()


def delete_root(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()


@pytest.mark.parametrize("delete", [delete_file, delete_root])
@pytest.mark.parametrize("is_decided", [False, True])
def test_a_stash_whose_files_were_deleted_fails(
    stasher: Stasher, delete: Callable[[Path], None], is_decided: bool
) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*range(12)))
    record = start(stasher)
    make_tasks(stasher, record)
    root = Path(stasher.destination, record.name)
    delete(root)
    if is_decided:  # and the finisher died at once
        record.decide(Decision(Outcome.COMPLETE, 0))
    with pytest.raises(StateMovedOnError, match=r"stash/20.* has (no _TABLES|\d+ files)"):
        complete_stash(stasher.ports(), record)
    assert not (root / "_SUCCESS").exists()
    assert not record.is_running()
    assert holds(stasher) == 0
    assert StashRecords(record.own).running() == []


def test_readers_leave_out_files_of_others_and_miss_none(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1, 2))
    stasher.run()
    (file,) = stasher.root.glob("a/*.gz")
    (file.parent / "a-00-01234567-0.json.gz").write_bytes(file.read_bytes())
    stash = Stash.open(stasher.destination)
    with stash.scan("a") as found:
        assert [each["k"] for each in found] == [1, 2]
    assert len(stash.splits("a")) == 1
    file.unlink()
    with pytest.raises(DataError, match="table a has 0 files of 1"):
        stash.splits("a")


def test_a_repeated_plan_has_the_same_pieces_after_properties_changed(stasher: Stasher) -> None:
    table = stasher.instance.create_table("a", SCHEMA)
    for first in range(0, 400, 100):
        ingest(table, rows(*range(first, first + 100)))
    record = start(stasher)
    ports = stasher.ports()

    def read_plan() -> list[object]:
        (version,) = plan_stash(ports, record, hold_owner(ports, record))
        tasks = record.progress()[version.id].tasks or 0
        found = [read_task(record, version.table_schema, version.id, task) for task in range(tasks)]
        (planned,) = (each.path for each in record.own.list_objects(f"{record.folder}/planned"))
        record.own.delete([planned])  # as if the planner had died
        return [*found]

    before = read_plan()
    assert len(before) > 1
    ports.change_properties({"sleeper.partition.splitting.files.maximum": "1"})
    assert read_plan() == before
    make_stash(ports, record)
    assert keys(stasher, record.name) == list(range(400))
