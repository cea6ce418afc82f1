"""Pages of the reports over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from sleeper.admin.tables import create_table
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.output import ReportKind
from tests.unit.serve.client import request

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """Tables a to e."""
    folder = tmp_path_factory.mktemp("status") / "instance"
    create_local_instance(folder, "test", {})
    opened = open_local_instance(folder)
    for name in "ebdac":
        create_table(opened, name, _SCHEMA, {})
    yield opened
    opened.close()


def read(instance: Instance, query: str) -> Any:
    answer = request(instance, "GET", f"/status?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("kind", ["tables", "files", "partitions", "state"])
def test_pages_have_all_tables_in_order_of_their_names(tables: Instance, kind: str) -> None:
    found, offset, total = [], 0, 1
    while offset < total:
        answer = read(tables, f"report={kind}&limit=2&offset={offset}")
        summaries = [each["summary"] for each in answer["reports"]]
        rows = [row["name"] for each in answer["reports"] for row in each["rows"] if "name" in row]
        found += [rows] if kind == "tables" else [[text.split()[1][0] for text in summaries]]
        offset, total = offset + 2, answer["tables"]
    assert found == [["a", "b"], ["c", "d"], ["e"]]


def test_the_instance_s_own_reports_are_on_the_first_page_of_all_reports(tables: Instance) -> None:
    first, second = (read(tables, f"report=all&limit=2&offset={n}") for n in (0, 2))
    assert first["tables"] == second["tables"] == 5
    on_tables = ["tables", "files", "files", "partitions", "partitions", "state", "state"]
    assert [each["report"] for each in first["reports"]][:7] == on_tables
    assert len(first["reports"]) > 7
    assert [each["report"] for each in second["reports"]] == on_tables
    assert read(tables, "report=tasks").keys() == {"reports"}
    assert read(tables, "report=all&table=a").keys() == {"reports"}


@pytest.mark.parametrize("query", ["report=tasks", "report=tables&table=a", "report=all&table=a"])
def test_other_pages_of_reports_without_pages_are_refused(tables: Instance, query: str) -> None:
    answer = request(tables, "GET", f"/status?{query}&offset=1")
    assert answer.status_code == 400
    assert "has one page" in answer.json()["reason"]


def test_a_request_reads_only_the_states_of_its_page(
    tables: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    state = tables.tables.state

    def open_state(table_id: Any) -> Any:
        opened.append(table_id)
        return state(table_id)

    monkeypatch.setattr(type(tables.tables), "state", property(lambda _: open_state))
    read(tables, f"report={ReportKind.ALL.value}&limit=2")
    assert len(set(opened)) == 2
