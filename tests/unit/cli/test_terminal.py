"""Control characters in values and names do not reach the terminal."""

import io

import pyarrow as pa
import pytest
import typer

from sleeper.cli.output import format_progress, note, report_failures
from sleeper.errors import NotFoundError
from sleeper.query.rows.output import write_csv, write_json, write_table
from sleeper.reports.output import Column, ColumnKind, Listing, write_text

_TITLE = "a\x1b]0;title\x07b\x9b31m\u202ec"
_SHOWN = r"a\x1b]0;title\x07b\x9b31m\u202ec"


def is_safe(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


def test_row_tables_escape_values_and_names() -> None:
    batch = pa.record_batch({f"n{_TITLE}": [_TITLE, "two\nlines\tof"]})
    sink = io.BytesIO()
    write_table(batch.schema, [batch], sink)
    text = sink.getvalue().decode()
    assert is_safe(text)
    assert text.count(_SHOWN) == 2
    assert "two lines of" in text


def test_csv_and_json_rows_are_not_escaped() -> None:
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


def test_errors_and_notes_escape_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), report_failures():
        raise NotFoundError(f"no table {_TITLE}")
    note(f"created table {_TITLE}\nnext")
    message = capsys.readouterr().err
    assert is_safe(message)
    assert message == f"error: no table {_SHOWN}\ncreated table {_SHOWN}\nnext\n"


def test_progress_has_rows_and_percent_of_the_total() -> None:
    assert format_progress(5_000, 20_000) == "5,000 of 20,000 rows, 25 %"
    assert format_progress(0, 0) == "0 of 0 rows, 0 %"
