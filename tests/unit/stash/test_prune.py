"""Deletion of old stashes: which ones, in which order, and what is never deleted."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.runs.lock import lock_root
from sleeper.stash import prune as prune_module
from sleeper.stash.layout import Success, root_name
from sleeper.stash.prune import PruneReport, parse_age, prune_stashes
from sleeper.stash.record import Decision, Outcome, StashRecord, StashRequest
from sleeper.stash.record_index import StashRecords, destination_digest
from sleeper.storage.location import DataRoot
from tests.clock import DAY_MS, START_MS, FakeClock

HOUR_MS = 3_600_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_MS + 100 * DAY_MS)


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "stash").mkdir()
    return tmp_path / "stash"


def add_stash(place: Path, day: int, completed: bool = True, written_day: int | None = None) -> str:
    """Writes a stash that starts on a day, and is complete after an hour. Returns its name."""
    time_ms = START_MS + day * DAY_MS
    name = root_name(time_ms)
    files = {
        "a~b/a~b-00-0123abcd-0.json.gz": b"rows",
        "a~b/a~b-1f4-0123abcd-12.parquet": b"more rows",
        "a~b/a~b-01-0123abcd-1.json.gz.0123456789abcdef.unfinished": b"r",
        "_TABLES": b"{}\n",
    }
    if completed:
        files["_SUCCESS"] = Success(time_ms, time_ms + HOUR_MS, "test").to_bytes()
        (place / "_LATEST").write_text(name)
    for path, content in files.items():
        (place / name / path).parent.mkdir(parents=True, exist_ok=True)
        (place / name / path).write_bytes(content)
        seconds = time_ms // 1000 if written_day is None else START_MS // 1000 + written_day * 86400
        os.utime(place / name / path, (seconds, seconds))
    return name


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.is_dir())


def prune(instance: Instance, place: Path, age_ms: int = WEEK_MS) -> list[str]:
    report = prune_stashes(instance, str(place), age_ms)
    assert report.problems == ()
    return [each.name for each in report.pruned]


def test_a_stash_is_kept_for_the_age_after_its_replacement(
    instance: Instance, place: Path, clock: FakeClock
) -> None:
    first, second, third = (add_stash(place, day) for day in (1, 50, 90))
    clock.now_ms = START_MS + 57 * DAY_MS + HOUR_MS
    assert prune(instance, place) == []
    clock.now_ms += 1
    assert prune(instance, place) == [first]
    clock.now_ms = START_MS + 97 * DAY_MS + HOUR_MS + 1
    assert prune(instance, place) == [second]
    clock.now_ms = START_MS + 1000 * DAY_MS
    assert prune(instance, place) == []
    assert names(place) == [third]


def test_a_dry_run_lists_the_same_and_deletes_nothing(instance: Instance, place: Path) -> None:
    first, second = add_stash(place, 1), add_stash(place, 2)
    tried = prune_stashes(instance, str(place), WEEK_MS, is_dry_run=True)
    assert names(place) == [first, second]
    done = prune_stashes(instance, str(place), WEEK_MS)
    (deleted,) = done.pruned
    assert tried == PruneReport(str(place), True, done.pruned, ())
    assert (deleted.name, deleted.is_complete) == (first, True)
    assert deleted.old_since_ms == START_MS + 2 * DAY_MS + HOUR_MS
    assert (deleted.files, deleted.bytes, deleted.other_files) == (4, 17, 0)
    assert names(place) == [second]


def test_the_stash_that_latest_names_and_the_one_completed_last_are_kept(
    instance: Instance, place: Path
) -> None:
    first, second, third = (add_stash(place, day) for day in (1, 2, 3))
    # The process that completed the third was killed before it wrote `_LATEST`.
    (place / "_LATEST").write_text(first)
    assert prune(instance, place) == [second]
    assert (place / "_LATEST").read_text() == first
    # Names do not tell which was completed last.
    success = place / first / "_SUCCESS"
    success.write_bytes(Success(START_MS, START_MS + 99 * DAY_MS, "test").to_bytes())
    (place / "_LATEST").write_text(third)
    assert prune(instance, place, 0) == []
    (place / "_LATEST").write_text(first)
    assert prune(instance, place, 0) == [third]


@pytest.mark.parametrize("content", ["2026-01-01-00-00-00", "rubbish", None])
def test_a_latest_that_names_no_complete_stash_is_repaired(
    instance: Instance, place: Path, content: str | None
) -> None:
    stash = add_stash(place, 1)
    latest = place / "_LATEST"
    latest.unlink() if content is None else latest.write_text(content)
    prune_stashes(instance, str(place), WEEK_MS, is_dry_run=True)
    assert latest.exists() == (content is not None)
    assert prune(instance, place) == []
    assert latest.read_text() == stash


def test_an_old_incomplete_stash_is_deleted_unless_it_is_still_written(
    instance: Instance, place: Path, clock: FakeClock
) -> None:
    old = add_stash(place, 10, completed=False)
    add_stash(place, 10, completed=False)
    late = add_stash(place, 11, completed=False, written_day=95)
    new = add_stash(place, 95, completed=False)
    assert prune(instance, place) == [old]
    assert names(place) == [late, new]
    assert prune(instance, place, 4 * DAY_MS) == [late, new]
    # A stash of another instance may not write for hours.
    clock.now_ms = START_MS + 101 * DAY_MS
    recent = add_stash(place, 100, completed=False)
    assert prune(instance, place, 0) == []
    clock.now_ms += 1
    assert prune(instance, place, 0) == [recent]


def test_a_damaged_stash_is_kept_and_reported(instance: Instance, place: Path) -> None:
    first, damaged, third = (add_stash(place, day) for day in (1, 2, 3))
    (place / damaged / "_SUCCESS").write_text("")
    report = prune_stashes(instance, str(place), WEEK_MS)
    assert [each.name for each in report.pruned] == [first]
    (problem,) = report.problems
    assert problem.startswith(f"stash {damaged} of {place} is kept: ")
    assert "_SUCCESS is damaged" in problem
    assert names(place) == [damaged, third]


def test_files_that_no_stash_writes_are_kept(instance: Instance, place: Path) -> None:
    first, latest = add_stash(place, 1), add_stash(place, 2)
    others = [
        place / "2026-13-01-00-00-00" / "_TABLES",
        place / "backup" / "_SUCCESS",
        place / "notes.txt",
        place / first / "_NOTES",
        place / first / "a~b" / "a~c-00-0123abcd-0.json.gz",
        place / first / "a~b" / "deeper" / "a~b-00-0123abcd-0.json.gz",
        place / first / "a~b" / "notes",
    ]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        os.utime(path, (0, 0))
    (deleted,) = prune_stashes(instance, str(place), WEEK_MS).pruned
    assert (deleted.name, deleted.files, deleted.other_files) == (first, 4, 4)
    found = {path for path in place.rglob("*") if path.is_file() and latest not in path.parts}
    assert found == {*others, place / "_LATEST"}
    assert prune(instance, place) == []


def add_record(instance: Instance, place: Path, name: str, submitted: bool = False) -> StashRecord:
    request = StashRequest(str(place), submitted=submitted)
    record = StashRecords(instance.storage.root).create(name, request)
    assert record is not None
    return record


def record_names(instance: Instance, place: Path) -> list[str]:
    records = StashRecords(instance.storage.root)
    return [each.name for each in records.at(destination_digest(str(place)))]


@pytest.mark.parametrize("suffix", ["gz", "sz"])
def test_a_stash_of_emodb_is_kept_whole(instance: Instance, place: Path, suffix: str) -> None:
    old = place / root_name(START_MS)
    (old / "a~b").mkdir(parents=True)
    (old / "a~b" / f"a~b-0d-bdd29a20d201740e-1294.json.{suffix}").write_bytes(b"rows")
    (old / "_SUCCESS").write_bytes(Success(START_MS, START_MS + 1, "emo").to_bytes())
    ours = add_stash(place, 1)
    newest = add_stash(place, 2)
    assert prune(instance, place) == [ours]
    assert names(place) == [old.name, newest]
    assert len([path for path in old.rglob("*") if path.is_file()]) == 2


def test_a_stash_that_is_made_is_kept_and_one_whose_process_died_is_failed(
    instance: Instance, place: Path
) -> None:
    live, locked, dead, ended = (add_stash(place, day, completed=False) for day in range(4))
    add_record(instance, place, live, submitted=True)
    lock = add_record(instance, place, locked).lock_path
    died = add_record(instance, place, dead)
    failed = add_record(instance, place, ended)
    failed.decide(Decision(Outcome.FAILED, 0, "no"))
    failed.record_end()
    with lock_root(instance.storage.root, lock, "a stash", instance.clock):
        prune_stashes(instance, str(place), WEEK_MS, is_dry_run=True)
        assert died.is_running()
        assert prune(instance, place) == [dead, ended]
    assert record_names(instance, place) == [live, locked]
    assert not died.is_running()


def test_a_stash_whose_record_is_deleted_is_not_continued(
    instance: Instance, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = add_stash(place, 1, completed=False)
    record = add_record(instance, place, dead)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(prune_module, "_delete", die)
        with pytest.raises(Killed):
            prune(instance, place)
    assert not record.is_running()
    assert names(place) == [dead]
    assert prune(instance, place) == [dead]


def test_records_of_stashes_without_files_are_deleted(
    instance: Instance, place: Path, clock: FakeClock
) -> None:
    first, latest = add_stash(place, 1), add_stash(place, 2)
    for name in (first, latest):
        add_record(instance, place, name).record_end()
    gone, starting, recent = (root_name(START_MS + d * DAY_MS) for d in (3, 4, 99))
    add_record(instance, place, gone).record_end()
    add_record(instance, place, starting, submitted=True)
    add_record(instance, place, recent).record_end()
    other = add_record(instance, place.with_name("other"), gone)
    prune_stashes(instance, str(place), WEEK_MS, is_dry_run=True)
    assert record_names(instance, place) == [first, latest, gone, starting, recent]
    assert prune(instance, place) == [first]
    assert record_names(instance, place) == [latest, starting, recent]
    assert other.is_running()
    assert record_names(instance, place.with_name("other")) == [gone]


class Killed(BaseException):
    """The process was killed here."""


def test_a_killed_prune_leaves_no_stash_that_seems_complete(
    instance: Instance, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each object that is deleted, and each folder."""
    doomed, latest = add_stash(place, 1), add_stash(place, 2)
    whole = sum(path.is_file() for path in (place / doomed).rglob("*"))
    delete, remove = DataRoot.delete, DataRoot.remove_empty_folders
    left = [0]

    def point() -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed

    def delete_each(self: DataRoot, paths: list[str]) -> None:
        for path in paths:
            point()
            delete(self, [path])

    def remove_after(self: DataRoot, folder: str) -> None:
        point()
        remove(self, folder)

    monkeypatch.setattr(DataRoot, "delete", delete_each)
    monkeypatch.setattr(DataRoot, "remove_empty_folders", remove_after)
    kills = 0
    while names(place) != [latest]:
        kills += 1
        left[0] = kills
        try:
            prune(instance, place)
        except Killed:
            files = [path for path in (place / doomed).rglob("*") if path.is_file()]
            if (place / doomed / "_SUCCESS").exists():
                assert len(files) == whole
            if files:
                assert (place / doomed / "_TABLES").exists()
        assert (place / "_LATEST").read_text() == latest
    assert kills > 3


def test_a_wrong_age_or_destination_is_refused(instance: Instance, tmp_path: Path) -> None:
    assert parse_age("36h") == 36 * HOUR_MS
    for age in ("7", "-7d", "a week", ""):
        with pytest.raises(InvalidRequestError, match=r"age '.*' is invalid \(expected a duration"):
            parse_age(age)
    with pytest.raises(NotFoundError, match="the folder does not exist"):
        prune_stashes(instance, str(tmp_path / "none"), WEEK_MS)
    assert not (tmp_path / "none").exists()
