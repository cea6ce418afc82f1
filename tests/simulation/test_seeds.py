"""Fresh and pinned seeds: no rule is broken, and a seed has the same history everywhere."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simulation.plan import PLANS, Plan
from tests.examples import examples
from tests.seeds import choose_seed
from tests.simulation.pinned import PINNED

REPOSITORY = Path(__file__).parents[2]
FRESH_SEEDS = {"local": 24, "aws": 8}
SIZE = ("--size", "40")
REPEATED_SEEDS = 1
SEEDS_PER_CHOICE = 100_000
"""So many seeds belong to each number of SLEEPER_TEST_SEED."""
USAGES = """
import json, sys
from typer.testing import CliRunner
from simulation.command import app

for arguments in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, arguments)
    print(json.dumps([result.exit_code, result.stderr]))
"""
"""A program, because its imports replace how this process would open instances."""


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


def assert_no_failure(results: Sequence[dict[str, Any]], world: str) -> None:
    failures = [
        f"python -m simulation --seed {result['seed']} --world {world}: {result['failure']}"
        for result in results
        if result["failure"] is not None
    ]
    assert not failures, "\n".join(failures)


def first_seed() -> int:
    return choose_seed() * SEEDS_PER_CHOICE


@cache
def run_fresh(world: str) -> list[dict[str, Any]]:
    """Runs the fresh seeds of a world, once for all tests."""
    count = str(examples(FRESH_SEEDS[world]))
    first = str(first_seed())
    return run_seeds("--world", world, "--from", first, "--seeds", count, *SIZE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", FRESH_SEEDS)
def test_fresh_seeds_break_no_rule(world: str) -> None:
    results = run_fresh(world)
    assert len(results) == examples(FRESH_SEEDS[world])
    assert_no_failure(results, world)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", FRESH_SEEDS)
def test_a_seed_has_the_same_history_everywhere_written_or_not(world: str, tmp_path: Path) -> None:
    surroundings = {
        "TMPDIR": str(tmp_path),
        "TZ": "Asia/Tokyo",
        "HOME": str(tmp_path),
        "LANG": "de_DE",
        "PYTHONHASHSEED": "7",
        "SLEEPER_RETRY_SECONDS": "1",
    }
    file = tmp_path / "history.txt"
    for result in run_fresh(world)[: examples(REPEATED_SEEDS)]:
        seed = ("--world", world, "--seed", str(result["seed"]), *SIZE)
        [other] = run_seeds(*seed, "--trace", str(file), folder=tmp_path, **surroundings)
        assert result["fingerprint"] == other["fingerprint"], result["seed"]
        assert result["trace"] == other["trace"]
        assert file.read_text().splitlines()[-len(result["trace"]) :] == result["trace"]


@pytest.mark.slow
@pytest.mark.parametrize("found", PINNED)
def test_a_pinned_history_breaks_no_rule(found: str, tmp_path: Path) -> None:
    plan: Plan = PINNED[found]
    file = tmp_path / "plan.json"
    file.write_text(PLANS.format(plan))
    assert_no_failure(run_seeds("--replay", str(file)), plan.world)


def test_wrong_usage_is_refused_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    cases = {
        "cannot read a plan": ("--replay", str(file)),
        "expected local, aws or all": ("--world", "moon"),
        "needs --seed or --replay": ("--trace", str(file)),
        "dance (expected one of": ("--focus", "dance"),
    }
    command = [sys.executable, "-c", USAGES, json.dumps(list(cases.values()))]
    # Typer would colour its errors where PY_COLORS is set.
    plain = {name: value for name, value in os.environ.items() if name != "PY_COLORS"}
    done = subprocess.run(command, cwd=REPOSITORY, env=plain, capture_output=True, text=True)
    for reason, line in zip(cases, done.stdout.splitlines(), strict=True):
        status, errors = json.loads(line)
        assert status == 2
        assert reason in " ".join(errors.replace("│", " ").split())
