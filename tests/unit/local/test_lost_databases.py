"""Tests that errors name lost or damaged files and the rest of the instance stays usable."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.admin.tables import create_table, delete_table
from sleeper.errors import DataError, NotFoundError
from sleeper.instance import Instance
from sleeper.local.folder import open_instance_folder
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.output import ReportKind
from sleeper.reports.service import report

SCHEMA = json.dumps({"rowKeyFields": [{"name": "k", "type": "LongType"}]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An instance with the tables `good` and `hurt`."""
    create_local_instance(tmp_path / "instance", "test")
    instance = open_local_instance(tmp_path / "instance")
    for name in ("good", "hurt"):
        create_table(instance, name, SCHEMA)
    instance.close()
    return tmp_path / "instance"


@pytest.fixture(params=["lost", "emptied", "damaged"])
def hurt(request: pytest.FixtureRequest, folder: Path) -> Iterator[Instance]:
    """The instance after damage to the state of `hurt`."""
    instance = open_local_instance(folder)
    state = folder / instance.tables.index.find("hurt").id / "state.db"
    match request.param:
        case "lost":
            state.unlink()
        case "emptied":
            state.write_bytes(b"")
        case _:
            state.write_bytes(b"no database at all, but long enough" * 1000)
    yield instance
    instance.close()


def report_rows(instance: Instance, kind: ReportKind) -> dict[str, dict[str, object]]:
    return {
        str(row[0]): dict(zip([c.name for c in listing.columns], row, strict=True))
        for listing in report(instance, kind)
        for row in listing.rows
    }


def test_tables_are_listed_beside_one_whose_state_cannot_be_read(
    hurt: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    rows = report_rows(hurt, ReportKind.TABLES)
    assert rows["good"]["leaves"] == 1
    assert rows["good"]["state"] == "active"
    assert rows["hurt"]["leaves"] is None
    assert rows["hurt"]["state"] == "unreadable"
    assert "could not read table hurt: " in caplog.text
    assert "state.db" in caplog.text


@pytest.mark.parametrize("kind", [ReportKind.FILES, ReportKind.PARTITIONS, ReportKind.STATE])
def test_reports_on_all_tables_leave_out_one_whose_state_cannot_be_read(
    hurt: Instance, kind: ReportKind, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(report(hurt, kind)) == 1
    assert "could not read table hurt: " in caplog.text
    with pytest.raises(DataError, match=r"state\.db"):
        report(hurt, kind, "hurt")


def test_a_lost_state_is_not_replaced_by_an_empty_one(hurt: Instance) -> None:
    for _ in range(2):
        with pytest.raises(DataError, match=r"state\.db"):
            hurt.table("hurt").state  # noqa: B018
    delete_table(hurt, "hurt", now=True)
    assert list(report_rows(hurt, ReportKind.TABLES)) == ["good", "hurt"]


def test_a_lost_instance_database_is_named(folder: Path) -> None:
    (folder / "instance.db").unlink()
    with pytest.raises(DataError, match=r"instance\.db does not exist .*restore"):
        open_instance_folder(folder)
    assert not (folder / "instance.db").exists()


def test_a_folder_without_an_instance_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"it has no instance\.properties"):
        open_instance_folder(tmp_path)
