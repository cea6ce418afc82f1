"""`sleeper purge` says what it waits for, and for how long."""

from pathlib import Path

import pytest

from sleeper.cli import purge as purge_module
from tests.unit.cli.conftest import Sleeper


@pytest.fixture
def cloned(cities: Sleeper, rows_file: Path) -> Sleeper:
    """The table `cities` with a deleted row, and a clone that was deleted."""
    for command in (
        ("table", "set", "cities", "sleeper.table.gc.delay.minutes=0"),
        ("ingest", "cities", rows_file),
        ("table", "clone", "cities", "u"),
        ("table", "delete", "u", "--yes"),
        ("delete", "cities", "--key", "Oslo"),
    ):
        result = cities(*command)
        assert result.status == 0, result.stderr
    return cities


@pytest.mark.slow
def test_a_purge_says_every_ten_seconds_what_it_waits_for_and_how_to_end_it(
    cloned: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_module, "_SECONDS_BETWEEN_NOTES", 0.2)
    result = cloned("purge", "cities", "--wait", "--timeout", "1s")
    assert result.status == 1
    notes = [line for line in result.stderr.splitlines() if line.startswith("waiting: 1 object")]
    assert len(notes) >= 2
    assert "needed by clone u, which is deleted and can be brought back" in notes[0]
    assert "(sleeper table delete u --now ends that)" in notes[0]
    assert "error: purge of cities not complete after 1s: 1 object kept" in result.stderr
    assert " kept " in result.stdout
    assert cloned("table", "delete", "u", "--now", "--yes").status == 0
    result = cloned("purge", "cities", "--wait", "--timeout", "1m")
    assert (result.status, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--timeout", "1m"), "--timeout without --wait"),
        (("--wait", "--timeout", "soon"), "--timeout soon: not a duration"),
    ],
)
def test_a_wrong_timeout_is_refused(
    cities: Sleeper, arguments: tuple[str, ...], reason: str
) -> None:
    result = cities("purge", "cities", *arguments)
    assert result.status == 2
    assert reason in " ".join(result.stderr.split())
