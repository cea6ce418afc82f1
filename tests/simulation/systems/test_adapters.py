"""The rules of adapters hold for the product, and find planted bugs."""

import pytest

from simulation.checks.adapters import check_adapters
from simulation.checks.log import check_submissions
from simulation.checks.rows import check_rows, read_by_query
from simulation.checks.violation import Violation
from simulation.model.values import comparable
from simulation.systems.records import AdapterSource
from simulation.workload.adapters import create_adapter_of_files, create_adapter_of_table
from sleeper.adapters import run as run_module
from sleeper.adapters.due import schedule_adapter
from sleeper.adapters.run import run_adapter
from sleeper.adapters.store import AdapterStore
from tests.simulation.systems.conftest import SystemDriver

NAME = "adapter-1"


def _check_table(driver: SystemDriver, name: str) -> None:
    look = driver.look()
    check_adapters(look)
    model = look.model(driver.instance.tables.index.find(name).id)
    assert model is not None
    check_submissions(model)
    check_rows(driver.instance, name, model, [model.number], read_by_query)


def test_rows_of_a_file_are_loaded_once(driver: SystemDriver) -> None:
    create_adapter_of_files(driver.client)
    for _ in range(2):
        run_adapter(driver.instance, NAME, "run")
        _check_table(driver, "rows")


def test_a_version_of_a_table_is_loaded(driver: SystemDriver) -> None:
    driver.ingest()
    create_adapter_of_table(driver.client)
    driver.ingest()
    run_adapter(driver.instance, NAME)
    (sink,) = (each.name for each in driver.client.catalogue.active() if each.is_snapshot)
    _check_table(driver, sink)


def test_a_load_of_other_rows_is_found(driver: SystemDriver) -> None:
    create_adapter_of_files(driver.client)
    run_adapter(driver.instance, NAME)
    rows = driver.journal.adapters[NAME].rows
    changed = [{**each, "count": comparable(123)} for each in rows]
    driver.journal.adapters[NAME] = AdapterSource(changed)
    with pytest.raises(Violation, match="a version has exactly its rows"):
        _check_table(driver, "rows")


def test_a_run_that_is_told_and_not_committed_is_found(
    driver: SystemDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_adapter_of_files(driver.client)

    def load(self: run_module._Run, _table: object) -> run_module.AdapterRun:
        return run_module.AdapterRun(NAME, self.run_id, self.job_id, "rows", "", 1, 1, 1, 3)

    monkeypatch.setattr(run_module._Run, "_load", load)
    run_adapter(driver.instance, NAME)
    with pytest.raises(Violation, match="is in the log"):
        check_adapters(driver.look())


def test_a_due_run_that_was_only_recorded_is_found(driver: SystemDriver) -> None:
    create_adapter_of_files(driver.client)
    schedule_adapter(driver.instance, NAME, "1h")
    AdapterStore(driver.instance.storage.root).record_due(NAME, driver.clock.now_ms)
    with pytest.raises(Violation, match="a due run is made"):
        check_adapters(driver.look())
