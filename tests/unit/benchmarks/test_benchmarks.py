"""The benchmarks' own checks fail when what came out is wrong, and their figures add up."""

import json
import multiprocessing.dummy
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import (
    changes,
    commits_dynamo,
    deletes,
    export_queue_tasks,
    ingest,
    job_creation,
    load,
    purge,
    query_service,
    snapshot_loads,
    snapshot_reads,
    stash_tasks,
    state,
    upserts,
)
from benchmarks.measuring import Watch
from benchmarks.records import (
    Recorded,
    read_records,
    record,
    replace_records,
    write_records,
)
from benchmarks.report import table, write_reports
from benchmarks.result import Aim, CheckFailedError, Result, comparison, figure, ratios
from benchmarks.rows import check_rows, check_sorted, random_rows, sorted_files, unsorted_files
from benchmarks.settings import Settings


def test_rows_out_of_order_fail_the_check_and_a_data_file_passes(tmp_path: Path) -> None:
    root, paths = sorted_files(tmp_path, 5_000, 1)
    assert check_sorted(Path(root.url_of(paths[0]))) == 5_000
    pq.write_table(random_rows(5_000, 1), tmp_path / "unsorted.parquet")
    with pytest.raises(CheckFailedError, match="not sorted"):
        check_sorted(tmp_path / "unsorted.parquet")


def test_a_row_that_is_lost_or_another_fails_the_check(tmp_path: Path) -> None:
    root, paths = sorted_files(tmp_path, 2_000, 2)
    first, second = (Path(root.url_of(p)) for p in paths)
    check_rows([first], [first], 2_000)
    with pytest.raises(CheckFailedError, match="2000 rows came out of 2001"):
        check_rows([first], [first], 2_001)
    with pytest.raises(CheckFailedError, match="sort keys"):
        check_rows([first], [second], 2_000)


def test_an_ingest_is_measured_and_its_rows_are_held_against_the_source(tmp_path: Path) -> None:
    source = unsorted_files(tmp_path, 4_000, files=2)
    watch = Watch()
    place = str(tmp_path / "ingest")
    ingest.ours(watch, str(source), place, 4_000, "one_file_per_leaf")
    assert watch.seconds > 0
    assert watch.peak_bytes > 2**20
    with pytest.raises(CheckFailedError, match="4000 rows are committed of 4001"):
        ingest.ours(watch, str(source), place, 4_001, "one_reference_per_leaf")


def test_the_state_benchmark_finds_every_reference(tmp_path: Path) -> None:
    result = state.measure(Settings(tmp_path, rows=1_000, repeats=1))
    assert {f.what for f in result.figures} >= {"open from a snapshot", "plan all compactions"}


def test_the_committer_commits_every_message_of_every_table(tmp_path: Path) -> None:
    watch = Watch()
    commits_dynamo.ours(watch, str(tmp_path / "one"), commits=40, tables=1, in_batch=1)
    commits_dynamo.ours(watch, str(tmp_path / "mixed"), commits=40, tables=5, in_batch=5)
    assert watch.seconds > 0


def test_a_compaction_job_is_created_for_every_partition(tmp_path: Path) -> None:
    watch = Watch()
    job_creation.ours(watch, str(tmp_path / "jobs"), partitions=32)
    assert watch.seconds > 0


def test_a_query_over_many_leaves_is_planned_recorded_and_sent(tmp_path: Path) -> None:
    result = query_service.fan_out(Watch(), str(tmp_path / "queries"), leaves=30)
    assert result.keys() >= {"plan", "plan_cpu", "record", "send"}


def test_a_follower_reads_every_row_of_the_ingests(tmp_path: Path) -> None:
    place = str(tmp_path / "changes")
    changes.ingest(Watch(), place, ingests=3)
    with pytest.raises(CheckFailedError, match="30000 rows were read of 40000"):
        changes.ours(Watch(), place, ingests=4)


def test_a_figure_is_the_median_and_says_whether_its_aim_is_met(tmp_path: Path) -> None:
    assert ratios([2.0, 3.0], [1.0, 6.0]) == [2.0, 0.5]
    met = figure("ours", [3.0, 1.0, 2.0], "x", Aim(2.0))
    missed = figure("memory", [300.0], "MiB", Aim(200.0, is_most=True))
    assert (met.value, met.low, met.high) == (2.0, 1.0, 3.0)
    result = Result("one", "some work", (met, missed))
    recorded = record(result, "a command", load=0.25, busy=0.125)
    text = write_reports([recorded], tmp_path).read_text()
    assert "`a command`" in text
    assert "load 0.25, busy 0.12." in text
    assert "| ours | 2.00 x | 1.00 – 3.00 | ≥ 2.00 | met |" in text
    assert "| memory | 300 MiB | 300 – 300 | ≤ 200 | **missed** |" in text
    assert "#c0392b" in (tmp_path / "benchmarks.svg").read_text()
    assert table([recorded]).count("**missed**") == 1


def test_a_new_record_replaces_the_old_one_of_its_benchmark(tmp_path: Path) -> None:
    def recorded(name: str, value: float) -> Recorded:
        figures = (figure("ours", [value], "x", Aim(2.0)), figure("raw", [1.0], "x"))
        compared = comparison("a job", {"Sleeper": [1.0], "Peer": [2.0]}, "ms")
        return record(Result(name, "work", figures, (compared,), ("a note",)), name, 0.1, 0.1)

    old = [recorded("one", 1.0), recorded("two", 1.0), recorded("dropped", 1.0)]
    write_records(old, tmp_path / "records.json")
    kept = read_records(tmp_path / "records.json")
    assert kept == old
    new = [recorded("three", 3.0), recorded("one", 3.0)]
    assert replace_records(kept, new, ["three", "two", "one"]) == [new[0], old[1], new[1]]
    assert read_records(tmp_path / "none.json") == []


def test_figures_are_not_published_from_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_SAMPLE_SECONDS", 0)
    loads = iter([2.0, 0.6, 0.4])
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads), 9, 9))
    assert load.wait_until_idle() == 0.4
    monkeypatch.setattr(load, "_WAIT_SECONDS_MAX", 0)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.6, 0, 0))
    with pytest.raises(load.BusyMachineError, match=r"0\.60 and stays above 0\.5"):
        load.wait_until_idle()


def test_a_purge_is_measured_and_every_object_is_searched(tmp_path: Path) -> None:
    watch = Watch()
    purge.ours(watch, str(tmp_path / "purge"), rows_each=100)
    assert watch.seconds > 0


def test_deletes_are_measured_and_rows_are_counted(tmp_path: Path) -> None:
    result = deletes.measure(Settings(tmp_path, 12_000, 1))
    assert all(each.value > 0 for each in result.figures)


def test_upserts_leave_the_rows_that_are_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserts, "_LOOKUPS", 5)
    files = upserts.make_files(tmp_path, 1_000, 100)
    arguments = {name: str(files / f"{name}.parquet") for name in ("rows", "changes")}
    found = upserts.ours(Watch(), **arguments, home=str(tmp_path / "table"))
    assert found == json.loads((files / "expected.json").read_text())
    assert found["rows"] == 1_010
    reads = upserts.reads(Watch(), **arguments, home=str(tmp_path / "table"))
    assert len(reads["scan"]) == len(reads["lookup"]) == 3


def test_loads_of_a_snapshot_table_are_measured_and_counted(tmp_path: Path) -> None:
    source, home = str(unsorted_files(tmp_path, 4_000)), str(tmp_path / "table")
    watch = Watch()
    snapshot_loads.load(watch, source, home, 4_000, snapshot_loads.SNAPSHOT)
    assert watch.seconds > 0
    with pytest.raises(CheckFailedError, match="4,000 rows are in the table"):
        snapshot_loads.load(Watch(), source, home, 4_001, snapshot_loads.SNAPSHOT)
    assert snapshot_loads.publish_rows(Watch(), source, home, versions=2)["ms"] > 0
    assert snapshot_loads.publish_leaves(Watch(), home, leaves=30, versions=2)["ms"] > 0


def test_reads_of_a_snapshot_table_are_measured_while_versions_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_reads, "_LOOKUPS", 5)
    monkeypatch.setattr(snapshot_reads, "_READS", 10)
    monkeypatch.setattr(snapshot_reads, "_CONTEXT", multiprocessing.dummy)  # threads
    source, home = str(unsorted_files(tmp_path, 4_000)), str(tmp_path / "table")
    compared = snapshot_reads.compare_reads(Watch(), source, home)
    assert {name: len(ratios) for name, ratios in compared.items()} == {
        "scan": 3,
        "range": 3,
        "lookup": 3,
    }
    found = snapshot_reads.read_during_publications(Watch(), home, turns=1)
    assert len(found["lookup"]) == len(found["scan"]) == 1
    assert found["rate"][0] > 0
    assert len(snapshot_reads.read_during_load(Watch(), source, home, turns=1)["load"]) == 1


def test_a_stash_and_its_reads_are_measured_and_checked(tmp_path: Path) -> None:
    home, out = str(stash_tasks.make_table(tmp_path, 2_000)), str(tmp_path / "out")
    watch = Watch()
    found = stash_tasks.write(watch, home, out, 2_000, keeps=True)
    assert found["bytes"] > 2_000 * 200
    for kind in ("batches", "documents", "lines"):
        stash_tasks.read(watch, out, 2_000, kind)
    stash_tasks.read_raw(watch, out, 2_000)
    stash_tasks.read_by_python(watch, out, 2_000)
    stash_tasks.scan(watch, home, 2_000)
    for as_documents in (True, False):
        data = stash_tasks.data_folder(Path(home))
        stash_tasks.copy(watch, data, str(tmp_path / "copy"), 2_000, as_documents)
    with pytest.raises(CheckFailedError, match="2000 rows of 2001"):
        stash_tasks.read(watch, out, 2_001, "lines")
    with pytest.raises(CheckFailedError, match="2000 rows of 2001"):
        stash_tasks.write(watch, home, out, 2_001)


def test_ingests_beside_a_stash_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, out = str(stash_tasks.make_table(tmp_path, 2_000)), str(tmp_path / "out")
    monkeypatch.setattr(stash_tasks, "_INGESTS", 2)
    found = stash_tasks.ingest_beside(Watch(), home, out, turns=1)
    assert all(value > 0 for (value,) in found.values())


def test_drains_commits_and_delays_of_exports_are_measured_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_queue_tasks, "_COMMITS_BEFORE", 0)
    home = str(tmp_path / "home")
    watch = Watch()
    found = export_queue_tasks.drain(watch, home, 500, 16)
    assert found["take_up_seconds"] > 0
    assert watch.seconds > 0
    commits = export_queue_tasks.commit(watch, home, 2)
    assert all(commits[count]["p99_ms"] > 0 for count in ("0", "1", "100"))


@pytest.mark.slow
def test_the_delay_of_exports_is_measured(tmp_path: Path) -> None:
    found = export_queue_tasks.follow(Watch(), str(tmp_path / "home"), 2)
    assert 0 < found["p50_ms"] <= found["p99_ms"]
