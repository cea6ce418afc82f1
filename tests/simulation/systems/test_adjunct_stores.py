"""The rule of adjunct stores holds for the product, and finds planted bugs."""

from collections.abc import Iterator

import pytest

from simulation.checks.adjunct_stores import check_stores
from simulation.checks.violation import Violation
from simulation.workload.adjunct_stores import (
    fill_adjunct_store,
    read_adjunct_store,
    rebuild_adjunct_store,
)
from sleeper.adjunct.inputs.table import TableInput
from tests.simulation.systems.conftest import SystemDriver


def _fill(driver: SystemDriver) -> None:
    """Fills stores until one is on disk."""
    for _ in range(6):
        driver.ingest()
        fill_adjunct_store(driver.client)


def test_the_rule_holds(driver: SystemDriver) -> None:
    _fill(driver)
    read_adjunct_store(driver.client)
    rebuild_adjunct_store(driver.client)
    read_adjunct_store(driver.client)
    assert len(driver.journal.store_reads) >= 8
    check_stores(driver.look())
    assert not driver.journal.store_reads


def test_a_position_before_its_data_is_found(
    driver: SystemDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(*_arguments: object) -> Iterator[object]:
        yield from ()

    _fill(driver)
    monkeypatch.setattr(TableInput, "changes", change)
    _fill(driver)
    with pytest.raises(Violation, match="an adjunct store has"):
        check_stores(driver.look())


def test_rows_that_are_not_written_are_found(
    driver: SystemDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_arguments: object) -> Iterator[object]:
        yield from ()

    monkeypatch.setattr(TableInput, "_read", read)
    _fill(driver)
    with pytest.raises(Violation, match="its keys differ"):
        check_stores(driver.look())
