"""A clock that was ahead, and is set back."""

from pathlib import Path

from sleeper.compaction.plan import compact_table
from sleeper.ingest.service import ingest_paths
from sleeper.instance import Instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.query.sql.service import open_sql
from sleeper.statestore.fold import DAY_MS
from tests.clock import FakeClock
from tests.system.bad_days import assert_nothing_stays, count_rows, make_table, run_all, write


def test_setting_the_clock_back_stops_no_operation(
    instance: Instance, clock: FakeClock, tmp_path: Path
) -> None:
    make_table(instance, ("m",))
    clock.now_ms += 29 * DAY_MS
    ingest_paths(instance, "rows", [str(write(tmp_path / "a.parquet", [("a", 1), ("z", 1)]))])
    clock.now_ms -= 29 * DAY_MS
    ingest_paths(instance, "rows", [str(write(tmp_path / "b.parquet", [("b", 1), ("y", 1)]))])
    assert compact_table(instance, "rows", full=True).created == 2
    assert run_all(instance) == 2
    assert sum(batch.num_rows for batch in open_query(instance, "rows", Query())) == 4
    counts = open_sql(instance, "SELECT count(*) AS n FROM rows").read_all()
    assert counts.to_pydict() == {"n": [4]}
    assert sum(count_rows(instance).values()) == 4
    assert_nothing_stays(instance)
