"""The report on costs: list prices times what AWS bills."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import sleeper
from sleeper.billing.prices import read_prices
from sleeper.billing.use import MonthlyUse
from sleeper.instance import Instance
from sleeper.reports.output import REPORTS_OF_ALL, Listing, ReportKind, json_rows
from sleeper.reports.service import report

SCHEMA = {"rowKeyFields": [{"name": "key", "type": "StringType"}]}


@pytest.fixture
def local(tmp_path: Path) -> Instance:
    instance = sleeper.create_instance(tmp_path / "i")
    for name in ("a", "b"):
        instance.create_table(name, SCHEMA).ingest([{"key": name}])
    return instance._ports


def costs_of(instance: Instance, table: str | None = None) -> Listing:
    (listing,) = report(instance, ReportKind.COSTS, table)
    return listing


def test_a_local_instance_costs_nothing(local: Instance) -> None:
    listing = costs_of(local)
    assert listing.summary == "this instance costs nothing: it uses no service of AWS"
    (row,) = json_rows(listing)
    assert (row["part"], row["dollars"]) == ("sum", 0.0)


def test_parts_have_their_prices_and_a_sum(local: Instance) -> None:
    asked = []

    def use(data_bytes: int) -> Sequence[MonthlyUse]:
        asked.append(data_bytes)
        return [
            MonthlyUse("queues", "q", {"sqs_million_requests": 5_000_000}, True),
            MonthlyUse("alarms", "10 alarms", {"alarm_month": 10}, False),
        ]

    billed = replace(local, monthly_use=use)
    rows = list(json_rows(costs_of(billed)))
    assert [(row["part"], row["table"], row["basis"]) for row in rows] == [
        ("queues", None, "measured"),
        ("alarms", None, "estimated"),
        ("data files", "a", "measured"),
        ("data files", "b", "measured"),
        ("sum", None, None),
    ]
    dollars = [row["dollars"] for row in rows]
    assert dollars[:2] == [2.0, 1.0]
    with local.table("a").state.reading() as state:
        size = state.files.totals().bytes
    assert dollars[2] == pytest.approx(size / 2**30 * read_prices().dollars["s3_gb_month"])
    assert dollars[-1] == pytest.approx(sum(float(each) for each in dollars[:-1] if each))
    # The bucket has them too, and they count once.
    assert asked == [pytest.approx(2 * size, rel=0.1)]
    of_table = list(json_rows(costs_of(billed, "a")))
    assert [row["table"] for row in of_table] == ["a", None]
    assert costs_of(billed).summary.startswith("3.00 dollars a month at list prices of us-east-1")


def test_a_report_on_all_does_not_ask_what_aws_bills(local: Instance) -> None:
    assert set(ReportKind) - set(REPORTS_OF_ALL) == {ReportKind.ALL, ReportKind.COSTS}
    assert "costs" not in {each.name for each in report(local, ReportKind.ALL)}
