"""Values and names cannot control a terminal."""

import io

import pyarrow as pa
import pytest
import typer

from sleeper.cli.failures import report_failures
from sleeper.cli.output import note
from sleeper.errors import NotFoundError
from sleeper.query.rows.output import write_csv, write_json, write_table
from sleeper.reports.output import Column, ColumnKind, Listing, write_text

_TITLE = "a\x1b]0;title\x07b\x9b31m\u202ec"
_SHOWN = r"a\x1b]0;title\x07b\x9b31m\u202ec"


def is_safe(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


def test_tables_of_rows_escape_values_and_names() -> None:
    batch = pa.record_batch({f"n{_TITLE}": [_TITLE, "two\nlines\tof"]})
    sink = io.BytesIO()
    write_table(batch.schema, [batch], sink)
    text = sink.getvalue().decode()
    assert is_safe(text)
    assert text.count(_SHOWN) == 2
    assert "two lines of" in text


def test_rows_for_programs_are_as_they_are() -> None:
    batch = pa.record_batch({"n": [_TITLE]})
    csv, json = io.BytesIO(), io.BytesIO()
    write_csv(batch.schema, [batch], csv)
    write_json(batch.schema, [batch], json)
    assert _TITLE in csv.getvalue().decode()
    assert "u202e" not in json.getvalue().decode()


def test_reports_escape_values() -> None:
    columns = (Column("name", "name"), Column("path", "path", ColumnKind.PATH))
    stream = io.StringIO()
    listing = Listing("tables", f"of {_TITLE}", columns, ((_TITLE, f"/x/{_TITLE}"),), note=_TITLE)
    write_text(listing, stream)
    assert is_safe(stream.getvalue())
    assert stream.getvalue().count(_SHOWN) == 4


def test_errors_and_notes_escape_what_they_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), report_failures():
        raise NotFoundError(f"no table {_TITLE}")
    note(f"created table {_TITLE}\nnext")
    said = capsys.readouterr().err
    assert is_safe(said)
    assert said == f"error: no table {_SHOWN}\ncreated table {_SHOWN}\nnext\n"
