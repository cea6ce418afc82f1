"""`sleeper table check`."""

from pathlib import Path

from tests.unit.cli.conftest import Sleeper


def test_check_reports_damaged_files(cities: Sleeper, rows_file: Path, tmp_path: Path) -> None:
    empty = cities("table", "check", "cities")
    assert (empty.status, "0 files, 0 rows read: no faults" in empty.stdout) == (0, True)
    cities("ingest", "cities", rows_file)
    cities("ingest", "cities", rows_file)
    well = cities("table", "check", "cities")
    assert well.status == 0
    assert "6 rows read: no faults" in well.stdout
    assert cities("table", "check", "cities", "--output", "json").rows == []
    path, *_ = sorted((tmp_path / "here").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    ill = cities("table", "check", "cities", "--output", "json")
    assert ill.status == 1
    (row,) = ill.rows
    assert row["report"] == "check"
    assert row["path"].endswith(path.name)
    assert "footer" in row["fault"]
    assert "1 fault" in cities("table", "check", "cities").stdout


def test_check_accepts_split_and_compacted_tables(cities: Sleeper, tmp_path: Path) -> None:
    rows = tmp_path / "many.csv"
    lines = [f"{chr(65 + i % 26)}{i},{i},{i}\n" for i in range(400)]
    rows.write_text("city,year,people\n" + "".join(lines))
    threshold = "sleeper.table.partition.splitting.threshold=60"
    cities("table", "set", "cities", threshold)
    for _ in range(3):
        cities("ingest", "cities", rows)
        cities("split", "cities")
        cities("compact", "cities", "--full")
        assert "no faults" in cities("table", "check", "cities").stdout
    assert cities("table", "check", "nowhere").status == 1
