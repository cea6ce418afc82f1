"""Peers do the same jobs, what they make is checked, and they stand side by side."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import aggregation, lookup_peers
from benchmarks.beside import merges_beside
from benchmarks.lookup import built_table
from benchmarks.measuring import Measured, Task, TaskFailedError, Watch, run, run_by_turns
from benchmarks.peers import environment
from benchmarks.peers.asking import Question, Tally, ask
from benchmarks.peers.environment import DUCKDB, LANCE, Installed, Peer
from benchmarks.picture import draw_comparisons
from benchmarks.questions import check_answers, questions_about
from benchmarks.records import record
from benchmarks.repeated_rows import check_aggregated, repeated_rows
from benchmarks.report import write_reports
from benchmarks.result import (
    OURS,
    CheckFailedError,
    Comparison,
    Result,
    comparison,
    of_the_best,
)
from benchmarks.rows import check_rows, sorted_files

# A module that loads quickly.
_TASKS = "tests.unit.benchmarks.tasks"


def test_an_aggregating_compaction_is_held_against_what_was_counted_before(tmp_path: Path) -> None:
    arguments = repeated_rows(tmp_path, 1_000, files=3)
    assert 600 < arguments.expected.groups < 750
    watch = Watch()
    aggregation.ours(watch, str(arguments.folder), list(arguments.paths), str(tmp_path / "place"))
    assert watch.seconds > 0
    assert sorted(path.suffix for path in arguments.folder.iterdir() if path.is_dir()) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda table: table.slice(1), "groups came out of"),
        (lambda table: table.set_column(3, "least", table.column("total")), "least of all groups"),
        (lambda table: pa.concat_tables([table.slice(1), table.slice(0, 1)]), "not sorted"),
    ],
)
def test_groups_that_are_wrong_fail_the_check(
    change: Callable[[pa.Table], pa.Table], complaint: str, tmp_path: Path
) -> None:
    arguments = repeated_rows(tmp_path, 500, files=2)
    rows = pa.concat_tables([pq.read_table(arguments.folder / path) for path in arguments.paths])
    groups = rows.group_by(["key", "sort"]).aggregate(
        [("total", "sum"), ("least", "min"), ("greatest", "max")]
    )
    right = groups.rename_columns(rows.column_names).sort_by(
        [("key", "ascending"), ("sort", "ascending")]
    )
    pq.write_table(right, tmp_path / "right.parquet")
    check_aggregated(tmp_path / "right.parquet", arguments.expected)
    pq.write_table(change(right), tmp_path / "wrong.parquet")
    with pytest.raises(CheckFailedError, match=complaint):
        check_aggregated(tmp_path / "wrong.parquet", arguments.expected)


def test_our_answers_to_the_questions_are_right_and_a_missing_row_is_noticed(
    tmp_path: Path,
) -> None:
    table = built_table(tmp_path, 1_000)
    questions = questions_about(sorted((table / "table").rglob("*.parquet")), table / "q.json")
    answers = lookup_peers.ours(Watch(), str(table), str(questions), threads=1)
    check_answers(questions, answers)
    assert {len(item["seconds"]) for item in answers.values()} == {300, 10}
    answers["one key"]["rows"] -= 1
    with pytest.raises(CheckFailedError, match="one key"):
        check_answers(questions, answers)


def test_the_first_questions_warm_up_and_are_not_counted(tmp_path: Path) -> None:
    questions = [{"keys": ["a"]}, {"keys": ["b"]}, {"low": "a", "high": "c"}]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"job": {"questions": questions, "warm": 1, "rows": 2, "sum": 14}}))
    requests: list[Question] = []
    result = ask(Watch(), str(path), requests.append, lambda _: Tally(1, 7))
    assert requests == [Question(["a"]), Question(["b"]), Question(None, "a", "c")]
    assert len(result["job"]["seconds"]) == 2
    check_answers(path, result)


def test_every_second_turn_goes_backwards_and_each_run_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def note(task: Task) -> Measured:
        order.append(task.function)
        return Measured(1.0, 1.0, 1, {})

    monkeypatch.setattr("benchmarks.measuring.run", note)
    run_by_turns({name: Task("module", name, {}) for name in "ab"}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_a_peer_that_fails_is_left_out_and_others_are_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    good = Task(_TASKS, "nothing", {})
    bad = Task(_TASKS, "missing", {})
    runs = run_by_turns({"good": good, "bad": replace(bad, may_fail=True)}, 2)
    assert {name: len(results) for name, results in runs.items()} == {"good": 2}
    assert "bad is left out" in capfd.readouterr().err
    with pytest.raises(TaskFailedError):
        run_by_turns({"bad": bad}, 1)


def test_a_task_whose_result_is_wrong_fails() -> None:
    def refuse(_: Measured) -> None:
        raise CheckFailedError("it is wrong")

    task = Task("benchmarks.raw", "open_raw_session", {})
    with pytest.raises(TaskFailedError, match="failed"):
        run(task)
    with pytest.raises(CheckFailedError, match="it is wrong"):
        run(Task(_TASKS, "nothing", {}, check=refuse))


def test_ours_is_compared_with_the_best_of_the_others_turn_by_turn() -> None:
    runs = {OURS: [1.0, 2.0], "one": [2.0, 8.0], "other": [4.0, 1.0]}
    assert of_the_best(runs, OURS, ["one", "other"], less_is_better=True) == [2.0, 0.5]
    assert of_the_best(runs, OURS, ["one", "other"], less_is_better=False) == [0.25, 0.25]
    measurements = {
        who: [Measured(s, s, 2**20, {}) for s in results] for who, results in runs.items()
    }
    peers = [Installed(Peer(name, "", ""), "1", Path()) for name in ("one", "other", "failed")]
    measurements = {
        who if who == OURS else f"{who} 1": results for who, results in measurements.items()
    }
    figures, comparisons = merges_beside(2_000_000, measurements, peers)
    assert [f.value for f in figures] == [1.25]
    assert [c.best.what for c in comparisons] == [OURS, OURS, OURS]
    assert merges_beside(1, {OURS: measurements[OURS]}, peers)[0] == []


def test_everyone_stands_side_by_side_in_table_and_picture(tmp_path: Path) -> None:
    few = comparison("a job", {OURS: [1.0], "<Peer>": [400.0, 500.0]}, "ms")
    alone = Comparison("another", few.figures[1:], less_is_better=False)
    result = Result("jobs", "some work", (), (few, alone), ("not the same at all",))
    text = write_reports([record(result, "a command", 0.1, 0.1)], tmp_path).read_text()
    assert "| | a job, ms | another, ms |" in text
    assert "| Sleeper | **1.00** (1.00 – 1.00) |  |" in text
    assert "| <Peer> | 450 (400 – 500) | **450** (400 – 500) |" in text
    assert "- not the same at all" in text
    picture = ElementTree.fromstring((tmp_path / "benchmarks-peers.svg").read_text())
    values = [item.text for item in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "ms, less is better, logarithmic" in values
    assert values.count("450") == 2
    bars = [float(b.attrib["width"]) for b in list(picture)[1:] if b.tag.endswith("rect")]
    assert 0 < bars[0] < bars[1] == bars[2]
    assert draw_comparisons([]).startswith("<svg")


def test_a_peer_that_cannot_be_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "peers" / "bin").mkdir(parents=True)
    (tmp_path / "peers" / "bin" / "python").symlink_to(sys.executable)
    versions = {DUCKDB: None, LANCE: "1.0"}
    messages: list[tuple[str, ...]] = []

    def refuse(*arguments: str) -> bool:
        messages.append(arguments)
        return False

    monkeypatch.setattr(environment, "_uv", refuse)
    monkeypatch.setattr(environment, "_version", lambda _, peer: versions[peer])
    result = environment.installed(tmp_path, (DUCKDB, LANCE))
    assert [item.label for item in result] == ["Lance 1.0"]
    assert [arguments[0] for arguments in messages] == ["pip", "pip"]
    assert "DuckDB cannot be installed" in capsys.readouterr().err
    assert environment.installed(tmp_path / "elsewhere", (DUCKDB,)) == []


def test_duckdb_does_the_same_jobs(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("benchmarks.peers.duckdb", exc_type=ImportError)
    root, paths = sorted_files(tmp_path, 1_000, 2)
    files = [Path(root.url_of(path)) for path in paths]
    bounds = {"spill": str(tmp_path), "memory_bytes": 2**28, "threads": 1}
    output = tmp_path / "out.parquet"
    duckdb.compact(Watch(), [str(f) for f in files], str(output), **bounds)
    check_rows([output], files, 2_000)
    arguments = repeated_rows(tmp_path, 500, files=2)
    inputs = [str(arguments.folder / path) for path in arguments.paths]
    duckdb.aggregate(Watch(), inputs, str(output), **bounds)
    check_aggregated(output, arguments.expected)
    questions = questions_about(files, tmp_path / "questions.json")
    check_answers(questions, duckdb.lookup(Watch(), [str(f) for f in files], str(questions), 1))


def test_chdb_does_the_same_jobs(tmp_path: Path) -> None:
    chdb = pytest.importorskip("benchmarks.peers.chdb", exc_type=ImportError)
    root, paths = sorted_files(tmp_path, 1_000, 2)
    files = [Path(root.url_of(path)) for path in paths]
    bounds = {"memory_bytes": 2**30, "threads": 1}
    output = tmp_path / "out.parquet"
    session = str(tmp_path / "one")
    chdb.compact(Watch(), [str(f) for f in files], str(output), spill=session, **bounds)
    check_rows([output], files, 2_000)
    arguments = repeated_rows(tmp_path, 500, files=2)
    inputs = [str(arguments.folder / path) for path in arguments.paths]
    output = tmp_path / "aggregated.parquet"
    session = str(tmp_path / "other")
    chdb.aggregate(Watch(), inputs, str(output), spill=session, **bounds)
    check_aggregated(output, arguments.expected)


@pytest.mark.parametrize("name", ["lance", "slatedb"])
def test_stores_of_their_own_answer_the_same_questions(name: str, tmp_path: Path) -> None:
    peer = pytest.importorskip(f"benchmarks.peers.{name}", exc_type=ImportError)
    root, paths = sorted_files(tmp_path, 1_000, 2)
    files = [Path(root.url_of(path)) for path in paths]
    home = str(tmp_path / "home")
    peer.build(Watch(), [str(f) for f in files], home)
    questions = questions_about(files, tmp_path / "questions.json")
    check_answers(questions, peer.lookup(Watch(), home, str(questions), threads=1))
