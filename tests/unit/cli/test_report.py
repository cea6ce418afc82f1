"""Reports, holds, snapshots and dead letters from the command line."""

from contextlib import closing
from pathlib import Path

import pytest

import sleeper as sleeper_api
from sleeper.jobs.queue import Failure, QueueName
from sleeper.local.instance import open_local_instance
from sleeper.opening import open_instance
from sleeper.reports.output import ReportKind
from sleeper.statestore.holds import Hold
from sleeper.statestore.transactions.holds import CreateFollower
from sleeper.systems import queues
from tests.unit.cli.conftest import Sleeper


@pytest.fixture
def full(cities: Sleeper, rows_file: Path) -> Sleeper:
    for job_id in ("j1", "j2", "j3"):
        assert cities("ingest", "cities", rows_file, "--job-id", job_id).status == 0
    return cities


def test_files_report_has_bounds_transactions_and_partitions(full: Sleeper) -> None:
    rows = full("report", "files", "--output", "json").rows
    assert [(r["rows"], r["smallest_number"], len(r["partitions"])) for r in rows] == [
        (3, 2, 2),
        (3, 3, 2),
        (3, 4, 2),
    ]
    assert rows[0]["smallest_key"] == ["Athens"]
    assert rows[0]["largest_key"] == ["Paris, Texas"]
    assert "/data/partition_" in rows[0]["file"]


def test_partitions_report_counts_rows_and_files_of_leaves(full: Sleeper) -> None:
    rows = full("report", "partitions", "--output", "json").rows
    assert [(r["depth"], r["leaf"], r["rows"], r["files"]) for r in rows] == [
        (0, False, 0, 0),
        (1, True, 3, 3),
        (1, True, 6, 3),
    ]
    sample = full("report", "partitions", "--table", "cities").stdout.splitlines()
    assert sample[0] == "table cities: 3 partitions, 2 leaves"
    assert sample[2].startswith("├─ ")
    assert 'city >= "M"' in sample[3]


def test_limit_notes_the_number_of_omitted_rows(full: Sleeper) -> None:
    text = full("report", "files", "--limit", "1")
    assert text.stdout.endswith("(2 more files: see --limit)\n")
    as_json = full("report", "files", "--limit", "1", "--output", "json")
    assert len(as_json.rows) == 1
    assert as_json.stderr == "note: 2 more files: see --limit\n"
    jobs = full("report", "ingest-jobs", "--limit", "2", "--output", "json")
    assert [job["job"] for job in jobs.rows] == ["j3", "j2"]
    assert jobs.stderr == "note: older ingest jobs exist: see --limit\n"


def test_report_all_contains_every_report(full: Sleeper) -> None:
    result = full("report", "all", "--output", "json")
    assert result.status == 0
    assert {row["report"] for row in result.rows} == {
        "tables",
        "files",
        "partitions",
        "state",
        "ingest-jobs",
        "tasks",
        "queues",
    }
    for kind in ReportKind:
        assert full("report", kind, "--table", "cities").status == 0


def test_table_option_restricts_a_report(full: Sleeper, schema_file: Path) -> None:
    full("table", "create", "towns", "--schema", schema_file)
    for kind in ("tables", "files", "partitions", "state", "ingest-jobs"):
        rows = full("report", kind, "--table", "towns", "--output", "json").rows
        assert {row.get("table", row.get("name")) for row in rows} <= {"towns"}
    assert full("report", "files", "--table", "villages").status == 1


def test_holds_and_followers_are_listed_and_removed(full: Sleeper, tmp_path: Path) -> None:
    instance = open_instance(tmp_path / "here")
    state = instance.table("cities").state
    later = instance.clock() + 3_600_000
    state.holds.take(Hold("h1", "me", 2, later))
    state.commit_or_raise(CreateFollower("feed", 3))
    instance.close()

    (hold,) = full("hold", "list", "cities", "--output", "json").rows
    assert (hold["hold"], hold["owner"], hold["version"]) == ("h1", "me", 2)
    (follower,) = full("follower", "list", "cities", "--output", "json").rows
    assert (follower["follower"], follower["position"], follower["lag"]) == ("feed", 3, 1)
    (row,) = full("report", "state", "--output", "json").rows
    assert (row["number"], row["holds"], row["followers"], row["lag"]) == (5, 1, 1, 1)

    assert full("follower", "delete", "cities", "feed").status == 0
    assert full("follower", "list", "cities", "--output", "json").rows == []
    assert full("follower", "delete", "cities", "feed").status == 1
    assert full("hold", "release", "cities", "h1").status == 0
    assert full("hold", "list", "cities", "--output", "json").rows == []
    again = full("hold", "release", "cities", "h1")
    assert (again.status, again.stderr) == (1, "error: table 'cities' has no hold 'h1'\n")


def test_report_without_tables_prints_a_note(sleeper: Sleeper) -> None:
    result = sleeper("report", "files")
    assert (result.status, result.stdout, result.stderr) == (0, "", "no tables\n")


def test_follower_create_starts_at_the_newest_or_given_version(full: Sleeper) -> None:
    created = full("follower", "create", "cities", "feed")
    assert (created.status, created.stdout) == (0, "")
    assert created.stderr == "created follower feed of table cities at transaction 4\n"
    assert full("follower", "create", "cities", "all", "--start", "0").status == 0
    rows = full("follower", "list", "cities", "--output", "json").rows
    assert {f["follower"]: (f["position"], f["lag"]) for f in rows} == {
        "all": (0, 3),
        "feed": (4, 0),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["feed"], "table 'cities' already has a follower 'feed'"),
        (["other", "--start", "99"], "version 99 does not exist yet: the newest is 5"),
        ([" "], "invalid follower name: ' ' (expected 1 to 200"),
        (["x" * 201], "1 to 200"),
    ],
)
def test_follower_create_rejects_invalid_arguments(
    full: Sleeper, arguments: list[str], message: str
) -> None:
    assert full("follower", "create", "cities", "feed").status == 0
    refusals = full("follower", "create", "cities", *arguments)
    assert refusals.status == 1
    assert message in refusals.stderr
    assert len(full("follower", "list", "cities", "--output", "json").rows) == 1


def test_follower_create_rejects_collected_versions(full: Sleeper) -> None:
    assert full("compact", "cities", "--all").status == 0
    assert full("run", "--until-idle", "--workers", "1").status == 0
    full("table", "set", "cities", "sleeper.table.gc.delay.minutes=0")
    assert full("gc", "cities").status == 0
    refusals = full("follower", "create", "cities", "feed", "--start", "0")
    assert refusals.status == 1
    assert "changes after version 0 are no longer complete: changes are readable" in (
        refusals.stderr
    )


def test_snapshot_take_stores_a_snapshot(full: Sleeper) -> None:
    snapshot = full("snapshot", "take", "cities")
    assert (snapshot.status, snapshot.stdout) == (0, "")
    assert snapshot.stderr == "stored a state snapshot at transaction 4\n"
    (row,) = full("report", "state", "--output", "json").rows
    assert row["snapshots"] == [4]


def test_dead_letters_list_redrive_and_delete(sleeper: Sleeper, tmp_path: Path) -> None:
    instance = open_instance(tmp_path / "here")
    queue = instance.jobs.queue(QueueName.INGEST)
    queue.send("poison")
    for _ in range(3):
        (message,) = queue.receive()
        queue.release(message.receipt)
    assert queue.receive() == ()

    (letter,) = sleeper("report", "dead-letters", "--output", "json").rows
    listing = sleeper("dead-letters", "list", "ingest", "--output", "json").rows
    assert [item["message"] for item in listing] == [letter["message"]]
    assert sleeper("dead-letters", "list", "compaction", "--output", "json").rows == []
    assert (letter["queue"], letter["body"]) == ("ingest", "poison")
    redriven = sleeper("dead-letters", "redrive", "ingest")
    assert redriven.stderr == "returned 1 dead letter to queue ingest\n"
    assert queue.counts().visible == 1
    missing = sleeper("dead-letters", "delete", "ingest", letter["message"])
    assert missing.status == 1
    unknown = sleeper("dead-letters", "redrive", "no-such")
    assert unknown.status == 1
    assert "expected one of ingest, compaction, splitting" in unknown.stderr
    instance.close()


QUERY = '{"type": "Query", "queryId": "q1", "tableName": "cities", "regions": [{"city": {}}]}'


def test_queries_send_and_show(full: Sleeper, tmp_path: Path) -> None:
    message = tmp_path / "query.json"
    message.write_text(QUERY)
    assert full("queries", "send", message).stdout == "q1\n"
    assert full("queries", "show", "q1").status == 1
    assert full("run", "--until-idle").status == 0
    text = full("queries", "show", "q1", "--output", "json")
    assert {row["state"] for row in text.rows} == {"finished"}
    assert (text.rows[0]["subquery"], sorted(r["rows"] for r in text.rows)) == ("-", [3, 6, 9])
    assert "results: " in text.stderr
    (row,) = full("report", "queries", "--output", "json").rows
    assert (row["query"], row["table"], row["state"]) == ("q1", "cities", "finished")


@pytest.mark.parametrize("text", ["nonsense", '{"type": "Query", "tableName": "t"}'])
def test_queries_send_rejects_invalid_messages(full: Sleeper, tmp_path: Path, text: str) -> None:
    message = tmp_path / "query.json"
    message.write_text(text)
    result = full("queries", "send", message)
    assert (result.status, "query message" in result.stderr) == (1, True)
    assert full("report", "queries", "--output", "json").rows == []


def test_compact_creates_jobs_and_gc_dry_run_deletes_nothing(full: Sleeper) -> None:
    result = full("compact", "cities", "--all")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr == "created 2 compaction jobs\n"
    rows = full("report", "compaction-jobs", "--output", "json").rows
    assert [(row["state"], row["files"]) for row in rows] == [("created", 3), ("created", 3)]
    files = full("report", "files", "--output", "json").rows
    assert {len(row["jobs"]) for row in files} == {2}
    dry = full("gc", "cities", "--dry-run", "--orphans")
    assert (dry.status, dry.stdout) == (0, "")
    assert dry.stderr.startswith("would delete 0 files (0 bytes)\n")


def test_gc_describes_its_result_as_json(full: Sleeper, tmp_path: Path) -> None:
    full("table", "set", "cities", "sleeper.table.gc.delay.minutes=0")
    full("compact", "cities", "--all")
    assert full("run", "--until-idle", "--workers", "1", "--output", "json").status == 0
    (dry,) = full("gc", "cities", "--dry-run", "--output", "json").rows
    (done,) = full("gc", "cities", "--orphans", "--output", "json").rows
    assert (dry["dry_run"], len(dry["paths"])) == (True, dry["files"])
    assert (done["table"], done["dry_run"], done["files"]) == ("cities", False, dry["files"])
    assert (done["bytes"], done["kept_for"]) == (dry["bytes"], None)
    assert done["oldest_readable_transaction"] > 0
    assert (done["orphaned_objects"], done["orphaned_bytes"]) == (0, 0)
    assert (done["paths"], done["orphaned_paths"]) == ([], [])


def test_split_splits_leaves_over_the_threshold(full: Sleeper) -> None:
    full("table", "set", "cities", "sleeper.table.partition.splitting.threshold=4")
    result = full("split", "cities")
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.startswith("1 leaf over the threshold\n")


def test_queues_report_counts_messages(full: Sleeper, rows_file: Path) -> None:
    assert full("ingest", "cities", rows_file, "--submit").status == 0
    rows = full("report", "queues", "--output", "json").rows
    numbers = ("visible", "in_flight", "delayed", "dead")
    counts = {row["queue"]: [row[name] for name in numbers] for row in rows}
    assert counts.pop("ingest") == [1, 0, 0, 0]
    assert {"compaction", "splitting", "query", "leaf_query", "deletion", "stash"} < set(counts)
    assert set(counts) < set(queues())
    assert all(each == [0, 0, 0, 0] for each in counts.values())
    sample = full("report", "queues").stdout
    assert sample.startswith("1 message, 0 dead letters\n")


def test_text_and_html_have_a_limited_number_of_tables(
    full: Sleeper, schema_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sleeper.cli.report._TABLES_MAX", 2)
    for name in ("towns", "villages"):
        assert full("table", "create", name, "--schema", schema_file).status == 0
    first = full("report", "state")
    assert "villages" not in first.stdout
    assert first.stderr == "1 more table: see --offset 2\n"
    second = full("report", "state", "--offset", "2")
    assert ("towns" in second.stdout, "villages" in second.stdout) == (False, True)
    assert second.stderr == ""
    page = tmp_path / "report.html"
    pages = []
    for offset in (0, 2):
        full("report", "all", "-o", "html", "--file", page, "--offset", offset)
        pages.append(page.read_text())
    assert ["<h2>villages" in text for text in pages] == [False, True]
    assert ["<h2>towns" in text for text in pages] == [True, False]
    rows = full("report", "state", "--output", "json").rows
    assert [row["table"] for row in rows] == ["cities", "towns", "villages"]
    refused = full("report", "tasks", "--offset", "2")
    assert refused.status == 1
    assert "report 'tasks' has one page" in refused.stderr


def test_the_status_is_an_exit_status_too(sleeper: Sleeper, tmp_path: Path) -> None:
    healthy = sleeper("status")
    assert healthy.stdout == "nothing is overdue, failing, lagging or dead\n"
    assert (healthy.status, sleeper("status", "--output", "json").rows) == (0, [])
    with closing(open_local_instance(tmp_path / "here")) as instance:
        queue = instance.jobs.queue(QueueName.DELETION)
        queue.send("{}")
        for _ in range(3):
            (message,) = queue.receive()
            queue.release(message.receipt, failure=Failure("no such table"))
        queue.receive()
    result = sleeper("status", "--output", "json")
    assert result.status == 1
    (row,) = result.rows
    assert (row["state"], row["kind"], row["name"]) == ("dead", "queue", "deletion")
    with sleeper_api.open_instance(tmp_path / "here") as opened:
        assert opened.status() == [row]
