"""Orphaned files of crashed runs are deleted on a schedule."""

from pathlib import Path

import sleeper

_LONG_AGO_MS = 1_000_000_000_000


def test_a_run_deletes_the_files_of_runs_that_died_long_ago(tmp_path: Path) -> None:
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("t", {"rowKeyFields": [{"name": "k", "type": "LongType"}]})
        rows = tmp_path / "rows.csv"
        rows.write_text("k\n1\n")
        table.ingest(rows)
        (remaining,) = (tmp_path / "instance").glob("*/data/*/*.parquet")
        orphan = remaining.with_name(f"{_LONG_AGO_MS}-0123456789abcdef.parquet")
        orphan.write_bytes(remaining.read_bytes())

        assert instance.run_until_idle(workers=1).idle

        assert remaining.exists()
        assert not orphan.exists()
        assert table.query().to_arrow().num_rows == 1
