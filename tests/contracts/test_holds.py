"""Contract of the holds of a table."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.aws.holds import DynamoHolds
from sleeper.local.holds import LocalHolds
from sleeper.properties.deployed import HOLDS_TABLE
from sleeper.statestore.database import Database
from sleeper.statestore.holds import Hold, HoldStore
from sleeper.tables import TableId
from tests.contracts.conftest import dynamo_tables

MakeHolds = Callable[[str], HoldStore]
HOLD = Hold("h1", "a reader", 7, 1_767_225_600_000)


@pytest.fixture(params=["local", "dynoxide", "moto", "simulated"])
def make_holds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeHolds]:
    if request.param == "local":
        yield lambda table_id: LocalHolds(Database(tmp_path / "holds.db"), TableId(table_id))
        return
    with dynamo_tables(request) as tables:
        name = tables.name(HOLDS_TABLE)
        yield lambda table_id: DynamoHolds(tables.client, name, table_id)


def test_a_table_without_holds_has_none(make_holds: MakeHolds) -> None:
    holds = make_holds("t1")
    assert list(holds.all()) == []
    holds.delete(["h1"])


def test_every_process_sees_a_hold_at_once_until_it_is_deleted(make_holds: MakeHolds) -> None:
    one, other = make_holds("t1"), make_holds("t1")
    one.put(HOLD)
    assert list(other.all()) == [HOLD]
    assert other.extend("h1", HOLD.expiry_ms + 1)
    one.put(replace(HOLD, id="h2", owner="ä", is_floor=True))
    assert sorted(hold.id for hold in one.all()) == ["h1", "h2"]
    assert {hold.id: hold.is_floor for hold in one.all()} == {"h1": False, "h2": True}
    assert {hold.expiry_ms - HOLD.expiry_ms for hold in one.all()} == {0, 1}
    other.delete(["h1", "h2", "h3"])
    assert not one.extend("h1", HOLD.expiry_ms + 2)
    assert list(one.all()) == []


def test_a_store_may_forget_holds_that_expired_and_no_others(make_holds: MakeHolds) -> None:
    holds = make_holds("t1")
    holds.forget(HOLD.expiry_ms)
    holds.put(HOLD)
    holds.put(replace(HOLD, id="h2", expiry_ms=HOLD.expiry_ms + 1))
    make_holds("t2").put(HOLD)
    holds.forget(HOLD.expiry_ms)
    assert [hold.id for hold in holds.all() if hold.id != "h1"] == ["h2"]
    assert [hold.id for hold in make_holds("t2").all()] == ["h1"]


def test_tables_have_holds_of_their_own(make_holds: MakeHolds) -> None:
    one, other = make_holds("t1"), make_holds("t2")
    one.put(HOLD)
    other.put(replace(HOLD, version=9))
    one.delete(["h1"])
    assert [hold.version for hold in other.all()] == [9]


def test_there_may_be_many_holds(make_holds: MakeHolds) -> None:
    holds = make_holds("t1")
    names = [f"h{number:03d}" for number in range(60)]
    for name in names:
        holds.put(replace(HOLD, id=name))
    assert sorted(hold.id for hold in holds.all()) == names
    holds.delete(names)
    assert list(holds.all()) == []
