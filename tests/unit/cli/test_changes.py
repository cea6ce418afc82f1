"""`sleeper changes`: formats, parts, and progress that follows the output."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.cli.changes import _flushed
from sleeper.opening import open_instance
from sleeper.query.changes.reader import ChangesRequest
from sleeper.query.changes.service import open_changes
from tests.unit.cli.conftest import Sleeper


@pytest.fixture
def changed(cities: Sleeper, rows_file: Path) -> Sleeper:
    """A table with an ingest, transaction 2, and a delete, transaction 3."""
    assert cities("ingest", "cities", rows_file, "--job-id", "load").status == 0
    assert cities("delete", "cities", "--range", ":P", "--id", "erase").status == 0
    return cities


def positions(sleeper: Sleeper) -> dict[str, int]:
    listed = sleeper("follower", "list", "cities", "--output", "json").rows
    return {row["follower"]: row["position"] for row in listed}


def test_changes_are_json_lines_in_order(changed: Sleeper) -> None:
    result = changed("changes", "cities")
    assert result.status == 0
    rows = [{k: v for k, v in row.items() if k != "time"} for row in result.rows]
    inserted = {"number": 2, "job": "load", "operation": "insert", "region": None}
    assert rows == [
        inserted | {"row": {"city": "Athens", "year": 2001, "people": 700}},
        inserted | {"row": {"city": "Oslo", "year": 2001, "people": 500}},
        inserted | {"row": {"city": "Paris, Texas", "year": 1999, "people": None}},
        {
            "number": 3,
            "job": "erase",
            "operation": "delete_region",
            "row": None,
            "region": {"city": {"min": "", "max": "P"}},
        },
    ]
    assert result.stderr.startswith("4 rows up to transaction 3, ")


def test_numbers_and_ages_select_a_part(changed: Sleeper) -> None:
    assert len(changed("changes", "cities", "--from", "3").rows) == 1
    assert len(changed("changes", "cities", "--to", "2").rows) == 3
    assert len(changed("changes", "cities", "--since", "2d").rows) == 4
    assert changed("changes", "cities", "--from", "4").stdout == ""
    refused = changed("changes", "cities", "--from", "9")
    assert (refused.status, refused.stdout) == (1, "")
    assert "error: transaction 9 does not exist yet: the newest is " in refused.stderr


@pytest.mark.parametrize("name", ["c.parquet", "c.arrow", "c.jsonl", "c"])
def test_files_have_the_format_of_their_suffix(changed: Sleeper, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    assert changed("changes", "cities", "--output", target).status == 0
    if name == "c.parquet":
        rows = pq.read_table(target).to_pylist()
    elif name == "c.arrow":
        rows = pa.ipc.open_stream(target).read_all().to_pylist()
    else:
        assert target.read_text() == changed("changes", "cities", "-o", "jsonl").stdout
        return
    assert [row["number"] for row in rows] == [2, 2, 2, 3]
    assert rows[3]["region"] == {"city": {"min": "", "max": "P"}}


def test_a_follower_continues_where_it_was(changed: Sleeper, rows_file: Path) -> None:
    first = changed("changes", "cities", "--from", "3", "--follower", "copy")
    assert [row["number"] for row in first.rows] == [3]
    assert first.stderr.startswith("created follower copy of table cities at transaction 2\n")
    changed("ingest", "cities", rows_file)
    # The creation of the follower was transaction 4.
    again = changed("changes", "cities", "--follower", "copy")
    assert [row["number"] for row in again.rows] == [5, 5, 5]
    assert positions(changed) == {"copy": 5}


def test_a_follower_moves_only_after_its_file_is_complete(changed: Sleeper, tmp_path: Path) -> None:
    lost = tmp_path / "no-folder" / "c.parquet"
    failed = changed("changes", "cities", "--follower", "copy", "--output", lost)
    assert failed.status == 1
    assert positions(changed) == {"copy": 0}
    target = tmp_path / "c.parquet"
    assert changed("changes", "cities", "--follower", "copy", "--output", target).status == 0
    assert pq.read_metadata(target).num_rows == 4
    assert positions(changed) == {"copy": 4}


def test_a_follower_moves_only_after_its_output_was_flushed(
    changed: Sleeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sleeper.query.changes.reader._ROWS_PER_COMMIT", 1)

    class ClosedPipe(io.BytesIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1
            if self.flushes == 2:
                raise BrokenPipeError

    instance = open_instance(tmp_path / "here")
    with (
        open_changes(instance, "cities", ChangesRequest(follower="copy")) as reader,
        pytest.raises(BrokenPipeError),
    ):
        for _ in _flushed(reader, ClosedPipe()):
            pass
    instance.close()
    # The rows of the ingest were flushed, and the delete was not.
    assert positions(changed) == {"copy": 2}


def test_following_ends_with_the_last_number(changed: Sleeper) -> None:
    result = changed("changes", "cities", "--follow", "--to", "3", "--output", "arrow")
    assert result.status == 0
    assert result.stderr.startswith("4 rows up to transaction 3")


def test_a_file_that_would_never_be_complete_is_refused(changed: Sleeper, tmp_path: Path) -> None:
    for output in ("parquet", tmp_path / "c.jsonl"):
        refused = changed("changes", "cities", "--follow", "--output", output)
        assert refused.status == 2
        assert "--follow without --to never completes a file" in refused.stderr
    assert not (tmp_path / "c.jsonl").exists()
