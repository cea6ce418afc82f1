"""Fresh and pinned seeds: no rule is broken, and a seed has the same history everywhere."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulation.plan import PLANS, Plan
from tests.examples import examples
from tests.seeds import choose_seed
from tests.simulation.pinned import PINNED

REPOSITORY = Path(__file__).parents[2]
FRESH_SEEDS = 8
REPEATED_SEEDS = 1
SEEDS_PER_CHOICE = 100_000
"""So many seeds belong to each number of SLEEPER_TEST_SEED."""


def run_seeds(
    *arguments: str, folder: Path = REPOSITORY, **environment: str
) -> list[dict[str, Any]]:
    """Runs the command; returns its results, the least seed first."""
    command = [sys.executable, "-m", "simulation", "--output", "json", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(results, key=lambda result: result["seed"])


def assert_no_failure(results: Sequence[dict[str, Any]]) -> None:
    failures = [
        f"python -m simulation --seed {result['seed']} --world local: {result['failure']}"
        for result in results
        if result["failure"] is not None
    ]
    assert not failures, "\n".join(failures)


def first_seed() -> str:
    return str(choose_seed() * SEEDS_PER_CHOICE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fresh_seeds_break_no_rule() -> None:
    count = examples(FRESH_SEEDS)
    results = run_seeds("--world", "local", "--from", first_seed(), "--seeds", str(count))
    assert len(results) == count
    assert_no_failure(results)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_seed_has_the_same_history_everywhere(tmp_path: Path) -> None:
    chosen = ("--world", "local", "--from", first_seed())
    count = str(examples(REPEATED_SEEDS))
    one = run_seeds(*chosen, "--seeds", count, "--parallel", "1")
    others = {
        "TMPDIR": str(tmp_path),
        "TZ": "Asia/Tokyo",
        "HOME": str(tmp_path),
        "LANG": "de_DE",
        "SLEEPER_RETRY_SECONDS": "1",
    }
    two = run_seeds(*chosen, "--seeds", count, "--parallel", "2", folder=tmp_path, **others)
    for result, other in zip(one, two, strict=True):
        assert result["fingerprint"] == other["fingerprint"], result["seed"]
        assert result["trace"] == other["trace"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_history_that_is_written_is_the_same(tmp_path: Path) -> None:
    seed = first_seed()
    [result] = run_seeds("--world", "local", "--seed", seed)
    file = tmp_path / "history.txt"
    [written] = run_seeds("--world", "local", "--seed", seed, "--trace", str(file))
    assert result["fingerprint"] == written["fingerprint"]
    assert file.read_text().splitlines()[-len(written["trace"]) :] == written["trace"]


@pytest.mark.slow
@pytest.mark.parametrize("found", PINNED)
def test_a_pinned_history_breaks_no_rule(found: str, tmp_path: Path) -> None:
    plan: Plan = PINNED[found]
    file = tmp_path / "plan.json"
    file.write_text(PLANS.format(plan))
    assert_no_failure(run_seeds("--replay", str(file)))


def test_wrong_usage_is_refused_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    for arguments, reason in (
        (("--replay", str(file)), "cannot read a plan"),
        (("--world", "moon"), "expected local, aws or all"),
        (("--trace", str(file)), "needs --seed or --replay"),
        (("--focus", "dance"), "dance (expected one of"),
    ):
        command = [sys.executable, "-m", "simulation", *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 2
        assert reason in " ".join(done.stderr.replace("│", " ").split())
