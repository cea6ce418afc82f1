"""Contract of state stores, with the log beside the state or remote."""

import threading
from pathlib import Path

import pytest
from obstore.store import ObjectStore

from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.errors import ConflictError, DataError, UnavailableError
from sleeper.properties.deployed import TRANSACTION_LOG_TABLE
from sleeper.statestore.holds import MARGIN_MS, Hold
from sleeper.statestore.transactions.holds import CreateFollower
from sleeper.statestore.transactions.transaction import Outcome, Status
from tests.clock import START_MS
from tests.contracts.simulated_services import simulated_tables
from tests.servers.dynoxide import DynamoServer
from tests.tables.state_table import StateTable


@pytest.fixture(params=["embedded", "remote", "dynoxide", "simulated"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> StateTable:
    if request.param in ("dynoxide", "simulated"):
        return dynamo_table(request, tmp_path)
    return StateTable(tmp_path, request.param).initialise()


@pytest.fixture(params=["sqlite", "dynoxide", "simulated"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> StateTable:
    if request.param in ("dynoxide", "simulated"):
        return dynamo_table(request, tmp_path)
    return StateTable(tmp_path, "remote").initialise()


def dynamo_table(request: pytest.FixtureRequest, folder: Path) -> StateTable:
    if request.param == "simulated":
        tables = simulated_tables()
    else:
        server: DynamoServer = request.getfixturevalue("dynamo_server")
        tables = server.make_tables()
    name = tables.name(TRANSACTION_LOG_TABLE)

    def make_log(objects: ObjectStore) -> DynamoTransactionLog:
        return DynamoTransactionLog(tables.client, name, "table", objects)

    return StateTable(folder, "remote", make_log=make_log).initialise()


def test_every_store_reads_a_commit_at_once(table):
    other = table.another_store()
    table.ingest("a")
    with other.reading() as state:
        assert [f.path for f in state.files.all()] == ["a"]
    other.commit(table.ingest_job("b"))
    assert table.leaf_paths("root") == ["a", "b"]


def test_a_reader_sees_one_version_during_commits(table):
    table.ingest("a")
    with table.store.reading() as state:
        table.another_store().commit(table.ingest_job("b"))
        assert [f.path for f in state.files.all()] == ["a"]
        assert state.number == 2


def test_a_commit_is_one_entry_and_validates_transactions_in_order(table):
    good, bad, better = table.ingest_job("a"), table.ingest_job("a"), table.ingest_job("b")
    outcomes = table.store.commit(good, bad, better)
    assert [o.status for o in outcomes] == [Status.APPLIED, Status.REFUSED, Status.APPLIED]
    assert [o.number for o in outcomes] == [2, None, 3]
    entry = table.log.appended[-1]
    assert (entry.first_number, entry.last_number) == (2, 3)


def test_a_refused_transaction_is_never_logged(table):
    table.ingest("a")
    entries = len(table.log.appended)
    assert table.ingest("a").refused
    assert len(table.log.appended) == entries
    with table.store.reading() as state:
        assert state.number == 2


def test_concurrent_commits_have_distinct_numbers(table):
    numbers: list[int] = []

    def run(thread: int) -> None:
        for i in range(20):
            (outcome,) = table.store.commit(table.ingest_job(f"{thread}-{i}"))
            numbers.append(outcome.number)

    threads = [threading.Thread(target=run, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(2, 82))
    assert len(table.leaf_paths("root")) == 80


def test_a_commit_that_cannot_be_validated_fails_alone(table):
    bad = table.ingest_job("bad\ud800")
    assert table.commit(bad).refused
    assert table.ingest("a").status is Status.APPLIED


def test_a_snapshot_and_a_trim_keep_the_state(table):
    table.ingest("a")
    table.store.save_snapshot()
    assert table.store.trim() == 0  # one snapshot is not enough
    table.ingest("b")
    table.store.save_snapshot()
    table.ingest("c")
    assert table.store.trim() == 2
    assert table.leaf_paths("root") == ["a", "b", "c"]
    fresh = table.another_store()
    with fresh.reading() as state:
        assert [f.path for f in state.files.all()] == ["a", "b", "c"]


def test_only_two_snapshots_are_kept(table):
    for path in ("a", "b", "c"):
        table.ingest(path)
        table.store.save_snapshot()
    names = sorted(p.name[:19] for p in (table.folder / "table/snapshots").iterdir())
    assert [int(n) for n in names] == [3, 4]


def test_trimming_stays_below_an_unexpired_hold(table):
    table.store.holds.take(Hold("hold", "me", 1, START_MS + 10))
    for path in ("a", "b"):
        table.ingest(path)
        table.store.save_snapshot()
    assert table.store.trim() == 1
    table.clock.now_ms += 10 + MARGIN_MS
    assert table.store.trim() == 2


def test_trimming_stays_below_a_follower(table):
    table.commit(CreateFollower("f", 1))
    for path in ("a", "b"):
        table.ingest(path)
        table.store.save_snapshot()
    assert table.store.trim() == 1
    table.store.advance_follower("f", 4)
    assert table.store.trim() == 3


def test_a_torn_snapshot_does_not_count_for_trimming(table):
    for path in ("a", "b"):
        table.ingest(path)
        table.store.save_snapshot()
    damage(min((table.folder / "table/snapshots").iterdir()), "torn")
    assert table.another_store().trim() == 0


def test_a_commit_that_loses_a_race_is_validated_again(remote):
    other = remote.another_store()
    remote.log.before_next_append = lambda: other.commit(remote.ingest_job("a"))
    assert remote.ingest("a").refused
    remote.log.before_next_append = lambda: other.commit(remote.ingest_job("b"))
    assert remote.ingest("c").number == 4
    assert remote.leaf_paths("root") == ["a", "b", "c"]


def test_a_writer_without_competitors_appends_without_reading_the_log(remote):
    remote.ingest("a")
    reads = remote.log.reads
    assert remote.ingest("b").number == 3
    assert remote.ingest("c").number == 4
    assert remote.log.reads == reads


def test_a_stale_copy_validates_against_the_log(remote):
    remote.ingest("a")
    other = remote.another_store()
    job = remote.ingest_job("b")
    other.commit(job)
    assert remote.assign("j", "b").status is Status.APPLIED
    assert remote.ingest("b").refused
    other.commit(remote.ingest_job("c"))
    assert remote.commit(job) == Outcome(Status.ALREADY_DONE, 3, "applied as transaction 3")
    assert remote.ingest("d").number == 6


def test_a_stale_copy_never_reuses_a_number(remote):
    remote.ingest("a")
    other = remote.another_store()
    other.commit(remote.ingest_job("b"), remote.ingest_job("c"))
    outcomes = remote.store.commit(remote.ingest_job("d"), remote.ingest_job("c"))
    assert [o.number for o in outcomes] == [5, None]
    assert remote.leaf_paths("root") == ["a", "b", "c", "d"]


def test_a_file_assigned_by_another_writer_is_not_assigned_twice(remote):
    remote.ingest("a")
    winner = remote.another_store()
    loser = remote.store

    def other_assigns() -> None:
        remote.store = winner
        remote.assign("winner", "a")
        remote.store = loser

    remote.log.before_next_append = other_assigns
    assert "assigned to another" in remote.assign("loser", "a").reason


def test_an_append_with_a_lost_response_is_recognised(remote):
    remote.log.lose_next_response = True
    assert remote.ingest("a") == Outcome(Status.APPLIED, 2)
    assert remote.ingest("b").number == 3
    assert remote.leaf_paths("root") == ["a", "b"]
    assert [e.first_number for e in remote.log.read(0)] == [1, 2, 3]


def test_a_commit_with_an_unknown_outcome_can_be_repeated(remote, monkeypatch):
    job = remote.ingest_job("a")
    append = remote.log.append

    def append_and_lose_response(entry):
        try:
            append(entry)
        finally:
            raise UnavailableError("no answer")

    monkeypatch.setattr(remote.log, "append", append_and_lose_response)
    with pytest.raises(UnavailableError):
        remote.commit(job)
    monkeypatch.undo()
    assert remote.commit(job).status is Status.ALREADY_DONE
    assert remote.leaf_paths("root") == ["a"]


def test_a_writer_that_always_conflicts_is_unavailable(remote, monkeypatch):
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)

    def conflict(entry):
        raise ConflictError("taken")

    monkeypatch.setattr(remote.log, "append", conflict)
    with pytest.raises(ConflictError):
        remote.ingest("a")
    with remote.store.reading() as state:
        assert state.number == 1


def trimmed_behind(remote: StateTable):
    """A store at version 1 of a log that is at 4 and trimmed to 3."""
    asleep = remote.another_store()
    with asleep.reading():
        pass
    for path in ("a", "b"):
        remote.ingest(path)
        remote.store.save_snapshot()
    remote.ingest("c")
    remote.store.save_snapshot()
    assert remote.store.trim() == 3
    return asleep


def test_a_reader_at_a_gap_opens_the_newest_snapshot(remote):
    asleep = trimmed_behind(remote)
    with asleep.reading() as state:
        assert [f.path for f in state.files.all()] == ["a", "b", "c"]


def test_a_writer_paused_across_a_trim_conflicts_and_resumes_from_a_snapshot(remote):
    asleep = trimmed_behind(remote)
    assert asleep.commit(remote.ingest_job("a"))[0].refused
    assert asleep.commit(remote.ingest_job("d"))[0].number == 5
    assert remote.leaf_paths("root") == ["a", "b", "c", "d"]


def damage(path: Path, damage_kind: str) -> None:
    content = path.read_bytes()
    if damage_kind == "torn":
        path.write_bytes(content[: len(content) // 2])
    elif damage_kind == "another's":
        path.rename(path.with_name(path.name[:-23] + "0" * 16 + ".db.zst"))
    else:
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])


@pytest.mark.parametrize("damage_kind", ["torn", "flipped", "another's"])
def test_a_damaged_snapshot_falls_back_to_the_older_one(remote, caplog, damage_kind):
    asleep = trimmed_behind(remote)
    newest = max((remote.folder / "table/snapshots").iterdir())
    damage(newest, damage_kind)
    with asleep.reading() as state:
        assert [f.path for f in state.files.all()] == ["a", "b", "c"]
    assert "skipped snapshot" in caplog.text


def test_a_gap_without_a_complete_snapshot_is_a_data_error(remote):
    asleep = trimmed_behind(remote)
    for path in (remote.folder / "table/snapshots").iterdir():
        damage(path, "torn")
    with pytest.raises(DataError, match="no snapshot"), asleep.reading():
        pass


def test_a_stale_read_does_not_read_the_log(remote):
    other = remote.another_store()
    with other.reading():
        pass
    remote.ingest("a")
    with other.reading(stale=True) as state:
        assert state.number == 1
    with other.reading() as state:
        assert state.number == 2


def test_a_file_that_is_not_a_database_is_a_data_error(tmp_path):
    (tmp_path / "state.db").write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(DataError, match="not a database"):
        StateTable(tmp_path, "embedded")


def test_unfinished_results_do_not_block_later_readers(table):
    table.ingest(*(f"a{i}" for i in range(2000)))
    with table.store.reading() as state:
        files = state.files.all()
        next(files)
    table.another_store().commit(table.ingest_job("b"))
    with table.store.reading() as state:
        assert state.files.totals().files == 2001
    del files
