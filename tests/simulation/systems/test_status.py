"""The rule of the status holds for the product, and finds planted bugs."""

import pytest

from simulation.checks.status import check_status
from simulation.checks.violation import Violation
from simulation.workload.adapters import create_adapter_of_files
from simulation.workload.status import read_report, read_status
from sleeper.adapters.due import schedule_adapter
from sleeper.errors import UnavailableError
from sleeper.reports import status as status_module
from tests.simulation.systems.conftest import SystemDriver


def test_a_settled_instance_has_no_problem(driver: SystemDriver) -> None:
    driver.ingest()
    read_status(driver.client)
    read_report(driver.client)
    check_status(driver.look())


def test_a_run_that_is_overdue_is_found(driver: SystemDriver) -> None:
    create_adapter_of_files(driver.client)
    schedule_adapter(driver.instance, "adapter-1", "rate(3 hours)")
    driver.clock.now_ms += int(5.5 * 3_600_000)
    with pytest.raises(Violation, match="only problems that somebody must solve"):
        check_status(driver.look())


def test_a_check_that_fails_is_found(driver: SystemDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_instance: object) -> None:
        raise UnavailableError("planted")

    monkeypatch.setattr(status_module, "_find_failed_jobs", fail)
    with pytest.raises(Violation, match="the status answers"):
        check_status(driver.look())
