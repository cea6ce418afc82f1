"""The hold of a table that Spark's own readers read."""

from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.errors import StateMovedOnError
from sleeper.opening import create_instance, open_instance
from sleeper.query.hold import take_shared_hold
from sleeper.spark.table_read import DriverHold
from tests.clock import FakeClock

SCHEMA = '{"rowKeyFields": [{"name": "n", "type": "LongType"}]}'
SECONDS = 3600


def test_a_hold_is_renewed_while_jobs_run_and_then_expires(tmp_path: Path) -> None:
    create_instance(tmp_path / "i")
    instance = open_instance(tmp_path / "i")
    # Not before the log's time.
    clock = FakeClock(system_clock() + 1000)
    instance = replace(instance, clock=clock)
    create_table(instance, "t", SCHEMA)
    table = instance.table("t")
    version = 1
    hold = take_shared_hold(table.state, version, SECONDS, clock, "spark")
    running = True
    kept = DriverHold(table, hold, lambda: running)

    def expiry_ms() -> int:
        return max(each.expiry_ms for each in table.state.holds.all())

    kept.renew()
    assert expiry_ms() == hold.until_ms
    clock.pass_seconds(SECONDS // 2)
    kept.renew()
    renewed_ms = expiry_ms()
    assert renewed_ms > hold.until_ms
    running = False
    clock.pass_seconds(SECONDS // 2)
    kept.renew()
    assert expiry_ms() == renewed_ms
    clock.pass_seconds(SECONDS)
    with pytest.raises(StateMovedOnError, match="version 1"):
        kept.renew()
    instance.close()
