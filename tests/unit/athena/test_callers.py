"""Restrictions of callers in reports and exports."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.admin.tables import create_table
from sleeper.bulk_export.service import run_bulk_export_message
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.queue import Message
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.service import restrict_caller
from sleeper.reports.access import check_report_access
from sleeper.reports.output import ReportKind

SCHEMA = '{"rowKeyFields":[{"name":"k","type":"IntType"}]}'
CALLERS = {"some": {"valueFields": []}, "all": {}}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """A table open to all callers, and one with full access only for the caller `all`."""
    create_local_instance(tmp_path / "instance", "test")
    opened_instance = open_local_instance(tmp_path / "instance")
    create_table(opened_instance, "open", SCHEMA)
    table = create_table(opened_instance, "guarded", SCHEMA)
    opened_instance.tables.properties.change(table.id, {QUERY_CALLERS.name: json.dumps(CALLERS)})
    yield opened_instance
    opened_instance.close()


def test_reports_of_a_table_require_full_access_to_it(instance: Instance) -> None:
    check_report_access(instance, ReportKind.FILES, "open", "some")
    check_report_access(instance, ReportKind.FILES, "guarded", "all")
    for kind, table in ((ReportKind.FILES, "guarded"), (ReportKind.FILES, None)):
        with pytest.raises(InvalidRequestError, match="'some' may not see all"):
            check_report_access(instance, kind, table, "some")


@pytest.mark.parametrize(
    "kind", [ReportKind.TASKS, ReportKind.QUEUES, ReportKind.DEAD_LETTERS, ReportKind.ALL]
)
def test_reports_of_the_instance_require_full_access_to_all_tables(
    instance: Instance, kind: ReportKind
) -> None:
    check_report_access(instance, kind, "open", "all")
    with pytest.raises(InvalidRequestError, match="'some' may not see all"):
        check_report_access(instance, kind, "open", "some")


@pytest.mark.parametrize("lines_kept", ["", "id", "name"])
def test_a_truncated_property_file_closes_the_table(instance: Instance, lines_kept: str) -> None:
    table = instance.table("guarded")
    (file,) = Path(instance.where).glob(f"tables/*{table.ref.id}*")
    lines = file.read_text().splitlines(keepends=True)
    remaining = [n for n, line in enumerate(lines) if lines_kept and f".{lines_kept}=" in line]
    file.write_text("".join(lines[: remaining[0] + 1] if remaining else []))
    for caller in ("some", "other"):
        with pytest.raises(UnavailableError, match=r"property file of table .* incomplete"):
            restrict_caller(table, caller)


@pytest.mark.parametrize("caller", ["some", "other"])
def test_an_export_requires_full_access_to_its_table(instance: Instance, caller: str) -> None:
    def export(name: str, sender: str) -> None:
        body = json.dumps({"exportId": f"{name}-{sender}", "tableName": name})
        run_bulk_export_message(instance, Message("1", body, "receipt", 1, 0, sender=sender))

    export("open", caller)
    export("guarded", "all")
    with pytest.raises(InvalidRequestError, match=f"'{caller}' may not"):
        export("guarded", caller)
