"""Reports as a page of HTML."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from sleeper.admin.tables import create_follower, create_table
from sleeper.cli.main import app
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.html.gather import gather_page
from sleeper.reports.html.page import ReportPage, format_page
from sleeper.reports.output import Column, ColumnKind, Listing, ReportKind
from tests.clock import START_MS, FakeClock

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'
_ATTACK = '<script>alert("x")</script>'


@pytest.fixture
def where(tmp_path: Path) -> Path:
    folder = tmp_path / "instance"
    create_local_instance(folder, "shop")
    instance = open_local_instance(folder, FakeClock())
    ref = create_table(instance, "orders", _SCHEMA, {}, [10, 20])
    keys = pa.array(range(30), pa.int64())
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([keys], schema=schema)
    ingest_rows(instance, "orders", [batch], "load-1")
    create_follower(instance, "orders", "warehouse")
    failed = (
        JobEvent(ref.id, "load-2", JobKind.INGEST, JobStep.STARTED, START_MS + 60_000, "r"),
        JobEvent(
            ref.id,
            "load-2",
            JobKind.INGEST,
            JobStep.FAILED,
            START_MS + 120_000,
            "r",
            reasons=(_ATTACK,),
        ),
    )
    running = JobEvent(ref.id, "load-3", JobKind.INGEST, JobStep.STARTED, START_MS + 90_000, "r")
    instance.jobs.tracker.record(*failed, running)
    instance.close()
    return folder


@pytest.fixture
def page(where: Path) -> str:
    instance = open_local_instance(where, FakeClock(START_MS + 180_000))
    try:
        return format_page(gather_page(instance, ReportKind.ALL, None, 100))
    finally:
        instance.close()


def test_the_page_is_complete_and_loads_nothing(page: str) -> None:
    elements = list(ElementTree.fromstring(page.removeprefix("<!doctype html>\n")).iter())
    assert not {"script", "link", "img", "iframe"} & {each.tag for each in elements}
    assert "default-src 'none'" in page
    assert not [each for each in elements if {"src", "style", "onclick"} & set(each.keys())]
    ids = {f"#{each.get('id')}" for each in elements}
    links = {each.get("href") for each in elements if each.get("href")}
    assert links
    assert links <= ids
    for text in ("Sleeper instance shop", "2026-01-01 00:03:00 UTC", "warehouse", "LongType"):
        assert text in page


def test_text_from_data_is_escaped(page: str) -> None:
    assert "<script>" not in page
    assert "&lt;script&gt;alert" in page


def test_characters_that_are_not_those_of_xml_are_escaped() -> None:
    columns = (Column("keys", "Keys"), Column("file", "\x1b[31m", ColumnKind.PATH))
    listing = Listing("some", "\x00", columns, ((["\x01\ufffe", "\ud7ff\n"], "a/\uffff\u202e"),))
    text = format_page(ReportPage("i", 0, [listing]))
    cells = ElementTree.fromstring(text.removeprefix("<!doctype html>\n")).iter("td")
    assert [each.text for each in cells] == ["\\x01\\ufffe, \ud7ff\n", "\\uffff\\u202e"]
    assert "\\x1b[31m" in text


def test_jobs_are_a_time_line(page: str) -> None:
    (time_line,) = re.findall(r'<svg[^>]*aria-label="Time line of 3 jobs.*?</svg>', page, re.DOTALL)
    kinds = re.findall(r'<g class="(\w+)">', time_line)
    assert sorted(kinds) == ["bad", "busy", "good"]
    # Two jobs overlap, so they have lanes of their own.
    assert len(set(re.findall(r'<rect x="[\d.]+" y="(\d+)"', time_line))) == 2


def test_partitions_are_a_tree(page: str) -> None:
    (tree,) = re.findall(r'<svg[^>]*aria-label="table orders: 5 part.*?</svg>', page, re.DOTALL)
    assert tree.count('class="leaf"') == 3
    assert tree.count('class="inner"') == 2
    assert "30 rows" in tree
    assert "k &gt;= 20" in page


def test_columns_without_values_and_objects_are_omitted() -> None:
    columns = tuple(Column(name, name.upper()) for name in ("a", "b", "c"))
    listing = Listing("some", "some rows", columns, ((1, None, {"x": 1}), (2, "", {})))
    text = format_page(ReportPage("i", 0, [listing]))
    assert re.findall(r"<th[^>]*>(\w)</th>", text) == ["A"]


def test_numbers_and_times_are_formatted_and_paths_shortened() -> None:
    columns = (
        Column("bytes", "Bytes", ColumnKind.BYTES),
        Column("time", "Time", ColumnKind.TIME),
        Column("file", "File", ColumnKind.PATH),
    )
    listing = Listing("some", "some rows", columns, ((2048, START_MS, "data/x/file.parquet"),))
    text = format_page(ReportPage("i", 0, [listing]))
    assert '<td class="right">2.0 KiB</td>' in text
    assert "<td>2026-01-01 00:00:00</td>" in text
    assert '<td title="data/x/file.parquet">file.parquet</td>' in text


def test_the_command_writes_a_file(where: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    arguments = ["--instance", str(where), "report", "all", "--output", "html"]
    result = CliRunner().invoke(app, [*arguments, "--file", str(file)])
    assert result.exit_code == 0, result.output
    text = file.read_text(encoding="utf-8")
    assert "Sleeper instance shop" in text
    printed = CliRunner().invoke(app, [*arguments, "--table", "orders"])
    assert printed.output.startswith("<!doctype html>")
    one = CliRunner().invoke(
        app, ["--instance", str(where), "report", "queues", "--output", "html"]
    )
    assert "orders" not in one.output
    assert "dead letters" in one.output


def test_a_file_needs_the_format(where: Path, tmp_path: Path) -> None:
    arguments = ["--instance", str(where), "report", "all", "--file", str(tmp_path / "report")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--file needs --output html" in result.output


def test_an_instance_without_tables_has_a_page(tmp_path: Path) -> None:
    create_local_instance(tmp_path / "new", "new")
    instance: Instance = open_local_instance(tmp_path / "new")
    try:
        text = format_page(gather_page(instance, ReportKind.ALL, None, 100))
    finally:
        instance.close()
    assert "0 tables" in text
