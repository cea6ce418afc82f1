"""Texts of failures, totals and coverage."""

from simulation.coverage import describe_coverage, measure_coverage
from simulation.faults import KINDS
from simulation.plan import Plan
from simulation.progress import Progress
from simulation.report import describe_failure, describe_totals, replay_command
from simulation.result import CallCount, FaultCount, Result

TRACE = (
    "1790000000.000000 worker1/main             queue.receive ingest",
    "1790000001.500000 worker1/main             killed after state.commit 1234",
    *(f"{1790000002 + n}.000000 client1/main             index.find t{n}" for n in range(25)),
    "1790000030.250000 client1/main             state.commit 1234 ! lost",
)
RESULT = Result(
    7,
    "a version has exactly its rows: version 3",
    calls=28,
    virtual_seconds=86_400,
    milliseconds=100,
    operations={"ingest": 2, "delete": 1},
    fault_counts=(
        FaultCount("lost", "ingest", "state.commit", 1),
        FaultCount("truncated", "storage", "storage.key file parquet", 2),
    ),
    call_counts=(CallCount("ingest", "state.commit", 2), CallCount("ingest", "index.find", 25)),
    trace=TRACE,
)
PLAN = Plan(7, "local")


def test_a_failure_shows_faults_quiet_processes_the_end_and_the_command() -> None:
    lines = describe_failure(RESULT, PLAN, replay_command(PLAN)).splitlines()
    assert lines[0] == "seed 7 of world local broke a rule"
    assert lines[1] == "  a version has exactly its rows: version 3"
    assert lines[3:5] == [
        "       -28.750  worker1/main  killed after state.commit 1234",
        "         0.000  client1/main  state.commit 1234 ! lost",
    ]
    assert "       -30.250  worker1/main  queue.receive ingest" in lines
    assert sum("index.find" in line for line in lines) == 19
    assert lines[-1] == "  repeat: python -m simulation --seed 7 --world local"


def test_colours_are_for_terminals() -> None:
    assert "\x1b" not in describe_failure(RESULT, PLAN, "")
    assert "\x1b" in describe_failure(RESULT, PLAN, "", is_coloured=True)


def test_a_planted_bug_is_part_of_the_command() -> None:
    plan = Plan(7, "aws", 30, ("split", "power lost"), bug="late")
    expected = "--seed 7 --world aws --size 30 --focus split --focus 'power lost' --bug late"
    assert replay_command(plan).endswith(expected)


def test_totals_add_up() -> None:
    text = describe_totals([RESULT, Result(8, None, calls=72, milliseconds=100)], 2.0)
    assert "2 seeds in 2 s, 1.0 days" in text
    assert "100 calls, 500 a second" in text
    assert "operations: 3, ingest 2, delete 1" in text
    assert text.endswith("failed: 7")


def test_coverage_lists_what_never_happened() -> None:
    coverage = measure_coverage([RESULT], ["delete", "ingest", "split"], ["state.trim"])
    commit = next(each for each in coverage.pairs if each.call == "state.commit")
    assert (commit.count, commit.fired) == (2, {"lost": 1})
    assert set(commit.never) == set(KINDS) - {"lost"}
    assert coverage.operations_never_run == ("split",)
    assert coverage.calls_never_made == ("state.trim",)
    text = describe_coverage(coverage)
    assert f"1 of {2 * len(KINDS)} combinations" in text
    assert "damaged objects: storage.key file parquet truncated 2" in text
    assert "1 of 2 pairs of operation and call met no fault:\n  ingest: index.find 25\n" in text


def test_progress_has_counts_and_the_rest() -> None:
    progress = Progress(3, None)
    progress.add(RESULT)
    assert progress.describe().startswith("1/3, 1 failed, ")
    assert progress.describe().endswith(" left")
