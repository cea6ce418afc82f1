"""The rule of published tables holds for the product, and finds what is not published right."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.bugs.catalogue import planted
from simulation.checks.iceberg import check_published
from simulation.checks.violation import Violation
from simulation.model.tables import TableKind
from sleeper.api.table import Table
from sleeper.iceberg.publish import Published
from sleeper.iceberg.service import publish_table
from tests.simulation.systems.conftest import SystemDriver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[SystemDriver]:
    driver = SystemDriver(tmp_path, TableKind.APPEND)
    yield driver
    driver.close()


def _publish(driver: SystemDriver) -> Published:
    return publish_table(driver.instance.table("rows"))


def test_the_rule_holds(driver: SystemDriver) -> None:
    for _ in range(3):
        driver.ingest()
        _publish(driver)
        check_published(driver.look())


def test_a_version_of_other_rows_is_found(driver: SystemDriver) -> None:
    driver.ingest()
    first = _publish(driver)
    driver.ingest()
    second = _publish(driver)
    path = Path(second.metadata_url.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    one, other = (each["snapshots"][-1]["manifest-list"] for each in (first.metadata, metadata))
    path.write_text(path.read_text().replace(other, one))
    with pytest.raises(Violation, match="exactly its rows: version"):
        check_published(driver.look())


def test_a_missing_manifest_is_found(driver: SystemDriver) -> None:
    driver.ingest()
    published = _publish(driver)
    url = published.metadata["snapshots"][-1]["manifest-list"]
    Path(url.removeprefix("file://")).unlink()
    with pytest.raises(Violation, match="exactly its rows"):
        check_published(driver.look())


def test_a_default_that_readers_do_not_see_is_found(driver: SystemDriver) -> None:
    driver.ingest()
    Table(driver.instance, "rows").add_field("more", "IntType", default=7)
    with planted("published-default-is-null"):
        _publish(driver)
    with pytest.raises(Violation, match="exactly its rows"):
        check_published(driver.look())
