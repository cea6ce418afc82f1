"""The task that fills adjunct stores on AWS: its health and its metrics."""

from pathlib import Path

import pytest

from sleeper.adjunct.definition import parse_stores
from sleeper.adjunct.metrics import AdjunctMetric
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.status import StoreStatus, write_report
from sleeper.adjunct.worker_task import STALE_SECONDS, is_healthy, measure_stores
from sleeper.clock import system_clock

STORES = "a=table:x b=table:y"


def write(parent: Path, name: str, seconds: float = 0.0, **more: object) -> None:
    (parent / name).mkdir(exist_ok=True)
    now = int(system_clock() - 1000 * seconds)
    status = StoreStatus(name, "table:x", "rocksdb", None, True, True, reported_ms=now, **more)  # type: ignore[arg-type]
    write_report(StoreFolder(parent, name), status)


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLEEPER_ADJUNCT_STORES", STORES)
    monkeypatch.setenv("SLEEPER_ADJUNCT_PATH", str(tmp_path))
    return tmp_path


def test_a_task_is_healthy_while_all_stores_write_their_status(parent: Path) -> None:
    assert not is_healthy()
    write(parent, "a")
    assert not is_healthy()
    write(parent, "b")
    assert is_healthy()
    write(parent, "b", STALE_SECONDS + 1)
    assert not is_healthy()


def test_the_oldest_store_and_the_failing_ones_are_measured(parent: Path) -> None:
    definitions, now = parse_stores(STORES), system_clock()
    assert measure_stores(parent, definitions, now - 5_000) == {
        AdjunctMetric.AGE_SECONDS: 5,
        AdjunctMetric.PROBLEMS: 0,
        AdjunctMetric.BYTES: 0,
    }
    write(parent, "a", updated_ms=now - 90_000, bytes=7)
    write(parent, "b", updated_ms=now - 60_000, bytes=2, problem="the log does not respond")
    found = measure_stores(parent, definitions, now)
    assert 90 <= found[AdjunctMetric.AGE_SECONDS] < 100
    assert (found[AdjunctMetric.PROBLEMS], found[AdjunctMetric.BYTES]) == (1, 9)
