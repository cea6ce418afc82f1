"""Runs of adapters from files and tables: what they load, record and refuse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sleeper
from sleeper.adapters.due import schedule_adapter
from sleeper.adapters.report import list_adapters, show_adapter
from sleeper.adapters.run import AdapterRun, run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adapters.store import AdapterStore
from sleeper.admin.tables import create_table, delete_table
from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError
from sleeper.garbage_collection.service import expire_table_versions
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep, TaskEvent, TaskStep
from sleeper.jobs.process import this_process
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.opening import create_instance, open_instance
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.reports.output import ReportKind, json_rows
from sleeper.reports.service import report
from sleeper.runs.commit import RunStart, begin_run
from tests.ports import with_ports

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = (
    '{"rowKeyFields": [{"name": "id", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
SNAPSHOT = {"sleeper.table.type": "snapshot"}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "here")
    opened = open_instance(tmp_path / "here")
    create_table(opened, "a", SCHEMA, SNAPSHOT)
    create_table(opened, "b", SCHEMA, SNAPSHOT)
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "exports"
    made.mkdir()
    return made


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["id,v", *rows]) + "\n")
    return path


def rows_of(instance: Instance, table: str, version: int | None = None) -> list[tuple[int, str]]:
    with open_query(instance, table, Query(version=version)) as result:
        return [(row["id"], row["v"]) for row in result.read_all().to_pylist()]


def run(instance: Instance, name: str, run_id: str | None = None) -> AdapterRun:
    return run_adapter(instance, name, run_id)


def test_each_run_loads_all_rows_of_the_files(instance: Instance, folder: Path) -> None:
    create_table(instance, "plain", SCHEMA)
    first = write(folder / "1.csv", "1,x", "2,y")
    create_adapter(instance, NewAdapter("files", [f"{folder}/*.csv"], "a"))
    create_adapter(instance, NewAdapter("more", [str(folder)], "plain"))
    assert run(instance, "files").rows == 2
    run(instance, "more")
    first.unlink()
    write(folder / "2.csv", "2,z")
    write(folder / "3.csv", "3,q")
    result = run(instance, "files", "second")
    run(instance, "more")
    assert rows_of(instance, "a") == [(2, "z"), (3, "q")]
    assert sorted(rows_of(instance, "plain")) == [(1, "x"), (2, "y"), (2, "z"), (3, "q")]
    assert (result.job_id, result.rows, result.source) == (
        "adapter-files:second",
        2,
        f"{folder}/*.csv",
    )


def test_a_file_that_several_paths_name_is_read_once(instance: Instance, folder: Path) -> None:
    path = write(folder / "1.csv", "1,x")
    create_adapter(
        instance, NewAdapter("files", [f"{folder}/*.csv", str(path), f"{folder}/1*"], "a")
    )
    assert run(instance, "files").rows == 1
    assert rows_of(instance, "a") == [(1, "x")]


def test_a_file_below_several_folders_that_a_pattern_matches_is_read_once(
    instance: Instance, folder: Path
) -> None:
    (folder / "deep").mkdir()
    write(folder / "1.csv", "1,x")
    write(folder / "deep" / "2.csv", "2,y")
    (folder / "newest.csv").symlink_to(folder / "1.csv")
    for number, texts in enumerate(([f"{folder}/**"], [str(folder), f"{folder}/deep/2.csv"])):
        create_adapter(instance, NewAdapter(f"files-{number}", texts, "a"))
        assert run(instance, f"files-{number}").rows == 2
        assert rows_of(instance, "a") == [(1, "x"), (2, "y")]


def test_patterns_are_matched_when_the_load_has_begun(
    instance: Instance, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that begins later would otherwise replace newer rows by older ones."""
    write(folder / "1.csv", "1,x")
    create_adapter(instance, NewAdapter("files", [f"{folder}/*.csv"], "a"))

    def add_a_file(*arguments: Any) -> RunStart:
        start = begin_run(*arguments)
        write(folder / "2.csv", "2,y")
        return start

    monkeypatch.setattr("sleeper.ingest.run.begin_run", add_a_file)
    assert run(instance, "files").rows == 2


def test_other_databases_are_no_paths_of_files(instance: Instance) -> None:
    for texts, error in (
        (
            ["jdbc:oracle:thin:me/hunter2@h"],
            "unknown kind of source: jdbc: (expected postgresql://",
        ),
        (
            ["a.csv", "jdbc:mysql://h/d?password=hunter2"],
            "a database is among files (expected",
        ),
        (["postgresq://me:hunter2@h/d"], "unknown kind of source: postgresq:// (expected postgres"),
    ):
        with pytest.raises(InvalidRequestError) as raised:
            create_adapter(instance, NewAdapter("x", texts, "a", check=False))
        assert str(raised.value).startswith(error)
        assert "hunter2" not in str(raised.value)


def test_an_adapter_with_a_schedule_gets_no_source_that_tasks_cannot_run(
    instance: Instance, folder: Path
) -> None:
    path = write(folder / "1.csv", "1,x")
    create_adapter(instance, NewAdapter("files", [str(path)], "a"))
    schedule_adapter(instance, "files", "1h")
    deployed = with_ports(instance, jobs={"queues": (QueueName.INGEST,)})
    with pytest.raises(InvalidRequestError, match="has no queue for runs of adapters"):
        create_adapter(deployed, NewAdapter("files", [str(folder)], "a", replace=True))
    create_adapter(deployed, NewAdapter("other", [str(folder)], "a"))


def test_a_repeated_run_id_changes_nothing_and_reads_nothing(
    instance: Instance, folder: Path
) -> None:
    path = write(folder / "1.csv", "1,x")
    create_adapter(instance, NewAdapter("files", [str(path)], "a"))
    first = run(instance, "files", "r1")
    path.unlink()
    again = run(instance, "files", "r1")
    assert (again.done_before, again.number, again.rows) == (True, first.number, 0)
    shown = list(json_rows(show_adapter(instance, "files", 10)[1]))
    assert [(each["run"], each["rows"], each["version"]) for each in shown] == [
        ("r1", 1, first.number)
    ]


def test_a_table_feeds_the_next_pinned_at_a_version(instance: Instance, folder: Path) -> None:
    path = write(folder / "1.csv", "1,x", "2,y")
    create_adapter(instance, NewAdapter("files", [str(path)], "a"))
    version = run(instance, "files").number
    create_adapter(instance, NewAdapter("copy", ["table:a"], "b"))
    create_adapter(instance, NewAdapter("old", [f"table:a@{version}"], "b"))
    write(path, "3,z")
    newest = run(instance, "files").number
    copied = run(instance, "copy")
    assert copied.source == f"table a at version {newest}"
    assert rows_of(instance, "b") == rows_of(instance, "a") == [(3, "z")]
    assert run(instance, "old").source == f"table a at version {version}"
    assert rows_of(instance, "b") == [(1, "x"), (2, "y")]
    assert not list(instance.table("a").state.holds.all())


def test_a_chain_before_its_first_load_has_an_error_that_says_so(instance: Instance) -> None:
    create_adapter(instance, NewAdapter("copy", ["table:a"], "b"))
    with pytest.raises(InvalidRequestError, match="table 'a': there is no snapshot yet"):
        run(instance, "copy")


def test_a_source_version_that_expires_before_it_is_held_is_no_failure(
    instance: Instance, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder / "1.csv", "1,x")
    create_adapter(instance, NewAdapter("files", [str(path)], "a"))
    create_adapter(instance, NewAdapter("copy", ["table:a"], "b"))
    run(instance, "files")
    acquire, loads = VersionHold.acquire, [["2,y"], ["3,z"]]

    def replace_first(hold: VersionHold) -> None:
        if loads:
            write(path, *loads.pop())
            run(instance, "files")
            expire_table_versions(instance, "a")
        acquire(hold)

    monkeypatch.setattr(VersionHold, "acquire", replace_first)
    run(instance, "copy")
    assert rows_of(instance, "b") == [(2, "y")]


def test_the_limits_of_queries_do_not_apply_to_a_source(instance: Instance, folder: Path) -> None:
    create_adapter(instance, NewAdapter("files", [str(write(folder / "1.csv", "1,x", "2,y"))], "a"))
    create_adapter(instance, NewAdapter("copy", ["table:a"], "b"))
    run(instance, "files")
    instance.change_properties({"sleeper.query.rows.max": "1"})
    with pytest.raises(InvalidRequestError):
        rows_of(instance, "a")
    assert run(instance, "copy").rows == 2


def test_a_deleted_source_is_a_rejected_run(instance: Instance) -> None:
    create_adapter(instance, NewAdapter("copy", ["table:a"], "b"))
    delete_table(instance, "a")
    with pytest.raises(InvalidRequestError, match="no table is named 'a'"):
        run(instance, "copy")
    (job,) = instance.jobs.tracker.recent(JobKind.ADAPTER)
    assert (job.state, job.reasons) == (JobState.REJECTED, ("no table is named 'a'",))


def test_the_history_has_rows_versions_sources_and_reasons(
    instance: Instance, folder: Path
) -> None:
    path = write(folder / "1.csv", "1,x")
    create_adapter(instance, NewAdapter("files", [str(path)], "a"))
    create_adapter(instance, NewAdapter("files.2", [str(path)], "a"))
    run(instance, "files", "good")
    run(instance, "files.2")
    write(path, "1,x", "many,y")
    with pytest.raises(InvalidRequestError, match=r"1.csv, row 2: field 'id' \(LongType\): 'many'"):
        run(instance, "files", "bad")
    assert rows_of(instance, "a") == [(1, "x")]
    bad, good = json_rows(show_adapter(instance, "files", 10)[1])
    assert (good["state"], good["rows"], good["source"]) == ("committed", 1, str(path))
    assert isinstance(good["bytes"], int)
    assert (bad["state"], bad["rows"], bad["version"], bad["source"]) == (
        "rejected",
        None,
        None,
        str(path),
    )
    assert "row 2: field 'id'" in str(bad["reason"])
    listed = {each["adapter"]: each for each in json_rows(list_adapters(instance))}
    assert (listed["files"]["state"], listed["files.2"]["state"]) == ("rejected", "committed")
    assert listed["files.2"]["rows"] == 1


@pytest.mark.parametrize(
    ("process", "state", "ended", "reason"),
    [
        (this_process(), "running", None, None),
        ("4711@1", "lost", "1970-01-01T00:01:00.000Z", "lost task: process 4711 died"),
    ],
    # The name of a process differs between the workers of a parallel run, and tests may not.
    ids=["alive", "killed"],
)
def test_a_killed_run_is_lost_and_ended_with_its_last_heartbeat(
    instance: Instance,
    folder: Path,
    process: str,
    state: str,
    ended: str | None,
    reason: str | None,
) -> None:
    create_adapter(instance, NewAdapter("files", [str(write(folder / "1.csv", "1,x"))], "a"))
    table_id = instance.tables.index.find("a").id
    ref = JobRunRef(table_id, "adapter-files:one", JobKind.ADAPTER, "r1", "t1")
    instance.jobs.tracker.record(ref.event(JobStep.STARTED, 20_000))
    for step, at_ms in ((TaskStep.STARTED, 10_000), (TaskStep.HEARTBEAT, 60_000)):
        instance.jobs.tasks.record(TaskEvent("t1", "adapter", step, at_ms, process=process))
    (listed,) = json_rows(list_adapters(instance))
    (shown,) = json_rows(show_adapter(instance, "files", 10)[1])
    (job,) = json_rows(*report(instance, ReportKind.ADAPTER_JOBS))
    (task,) = json_rows(*report(instance, ReportKind.TASKS))
    assert {each["state"] for each in (listed, shown, job, task)} == {state}
    assert {each["reason"] for each in (listed, shown, job)} == {reason}
    assert listed["ended"] == ended
    assert shown["seconds"] == job["seconds"] == (None if ended is None else 40)


def test_frequent_runs_do_not_hide_the_last_run_of_another_adapter(
    instance: Instance, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(folder / "1.csv", "1,x"))
    for name, sink in (("rare", "a"), ("frequent", "b")):
        create_adapter(instance, NewAdapter(name, [path], sink))
        run(instance, name)
    monkeypatch.setattr("sleeper.adapters.report._RECENT_JOBS", 1)
    assert {row["state"] for row in json_rows(list_adapters(instance))} == {"committed"}


def test_a_deleted_sink_is_a_rejected_run(instance: Instance, folder: Path) -> None:
    create_adapter(instance, NewAdapter("files", [str(write(folder / "1.csv", "1,x"))], "a"))
    delete_table(instance, "a")
    with pytest.raises(InvalidRequestError, match="no table is named 'a'"):
        run(instance, "files")
    (job,) = instance.jobs.tracker.recent(JobKind.ADAPTER)
    assert job.state is JobState.REJECTED


@pytest.mark.parametrize(
    ("source", "sink", "error"),
    [
        ("{folder}/no.csv", "a", "no.csv does not exist"),
        ("{folder}/*.parquet", "a", "no file matches"),
        ("{folder}", "a", "holds no file of a known format"),
        ("{folder}/bad.csv", "a", "columns do not fit the table: missing: 'id'"),
        ("table:nosuch", "a", "no table is named 'nosuch'"),
        ("table:b@99", "a", "table 'b': version 99 does not exist yet"),
        ("table:b@", "a", "source 'table:b@' has no version (expected table:NAME@VERSION)"),
        ("table:b@soon", "a", "as of 'soon': expected a transaction number"),
        ("table:other", "a", "table 'other' has no field 'id', which the sink has"),
        ("table:typed", "a", "table 'typed': field 'v' is IntType, which does not fit the sink's"),
        ("table:a", "a", "table 'a' is both source and sink"),
        ("table:b", "nosuch", "no table is named 'nosuch'"),
        ("oracle://scott:tiger@db/x", "a", "unknown kind of source: oracle:// (expected postgres"),
        ("files:", "a", "source 'files:' has no path"),
    ],
)
def test_a_source_that_cannot_be_loaded_fails_at_the_creation(
    source: str, sink: str, error: str, instance: Instance, folder: Path
) -> None:
    (folder / "bad").mkdir()
    (folder / "bad.csv").write_text("key,v\n1,x\n")
    if source == "{folder}":
        source = "{folder}/bad"
    create_table(instance, "other", SCHEMA.replace('"id"', '"key"'))
    create_table(instance, "typed", SCHEMA.replace("StringType", "IntType"))
    with pytest.raises((InvalidRequestError, NotFoundError)) as raised:
        create_adapter(instance, NewAdapter("x", [source.format(folder=folder)], sink))
    assert error in str(raised.value)
    assert "tiger" not in str(raised.value)
    assert AdapterStore(instance.storage.root).names() == ()


def test_sources_that_do_not_belong_together_are_refused(instance: Instance) -> None:
    for texts, error in (
        ([], "no source"),
        (["table:a", "x.csv"], "2 sources, of which the first is a database or a table"),
        (["x.csv", "table:a"], "source 'table:a' is among files"),
    ):
        with pytest.raises(InvalidRequestError, match=error):
            create_adapter(instance, NewAdapter("x", texts, "b"))
    options: dict[str, Any]
    for text, options, error in (
        ("y.csv", {"partitions": 2, "fetch_rows": 3}, "table, partitions, fetch rows given for a"),
        ("postgresq://h/d", {}, r"unknown kind of source: .*; did you mean postgresql\?"),
        ("mysql://h/d", {"timeout": "soon"}, "timeout 'soon' is not a duration"),
        ("mysql://h/d", {"timeout": "8d"}, "timeout '8d' is out of range"),
        ("mysql://h/d", {"table": "a b"}, "table 'a b' is not the name of a table"),
    ):
        given: dict[str, Any] = {"table": "t", **options}
        with pytest.raises(InvalidRequestError, match=error):
            create_adapter(instance, NewAdapter("x", [text], "b", **given))


def test_an_adapter_is_replaced_only_on_request(instance: Instance) -> None:
    create_adapter(instance, NewAdapter("x", ["table:a"], "b"))
    with pytest.raises(ConflictError, match="adapter 'x' already exists"):
        create_adapter(instance, NewAdapter("x", ["table:b"], "a"))
    create_adapter(instance, NewAdapter("x", ["table:b"], "a", replace=True))
    assert AdapterStore(instance.storage.root).get("x").sink.table == "a"


def test_a_source_that_is_away_is_not_opened_on_request(instance: Instance) -> None:
    url = "postgresql://me@127.0.0.1:1/x"
    create_adapter(instance, NewAdapter("x", url, "a", table="t", check=False))
    new = NewAdapter("y", url, "a", table="t", password="env:NO_SUCH_VARIABLE", check=False)
    with pytest.raises(InvalidRequestError, match="variable NO_SUCH_VARIABLE is not set"):
        create_adapter(instance, new)


def test_the_python_api_creates_runs_lists_and_deletes(tmp_path: Path, folder: Path) -> None:
    with sleeper.create_instance(tmp_path / "mine") as mine:
        mine.create_table("t", SCHEMA, SNAPSHOT)
        path = write(folder / "1.csv", "1,x")
        made = mine.create_adapter("files", str(path), "t")
        mine.create_adapter("away", "postgresql://h/d", "t", table="x", timeout="1m", check=False)
        assert [each.name for each in mine.adapters()] == ["away", "files"]
        assert made in mine.adapters()
        assert mine.run_adapter("files", "r").rows == 1
        assert mine.run_adapter("files", "r").done_before
        assert mine.table("t").query().to_arrow().to_pylist() == [{"id": 1, "v": "x"}]
        scheduled = mine.schedule_adapter("files", "1h").schedule
        assert scheduled is not None
        assert scheduled.expression == "1h"
        assert mine.schedule_adapter("files", None).schedule is None
        mine.delete_adapter("files")
        with pytest.raises(NotFoundError):
            mine.run_adapter("files")
