"""The model of the soak: it accepts each state that may be, and finds each other one."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.soak.checks import check_receiver
from simulation.soak.journal import Journal
from simulation.soak.model import Block, Model, Row
from simulation.soak.tables import Receiver
from tests.servers.http_receivers import Request

KEYS = (1, 2, 3)


def rows(value: str, *keys: int) -> list[Row]:
    return [(key, value) for key in keys or KEYS]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def block(model: Model) -> Block:
    return model.add_block("t", KEYS)


def find_problems(model: Model, read: list[Row]) -> list[str]:
    return model.check(model.begin_reading("t"), read)


def test_an_acknowledged_write_must_be_there(model: Model, block: Block) -> None:
    block.begin("a").acknowledge(is_promise=False)
    assert find_problems(model, rows("a")) == []
    (problem,) = find_problems(model, [])
    assert "block t-0 has no rows (expected the value ['a'])" in problem


@pytest.mark.parametrize("end", [lambda change: None, lambda change: change.abandon()])
def test_an_unacknowledged_write_may_be_there_as_a_whole(
    model: Model, block: Block, end: Callable[..., None]
) -> None:
    end(block.begin("a"))
    assert find_problems(model, []) == find_problems(model, rows("a")) == []
    (problem,) = find_problems(model, rows("a", 1, 2))
    assert "2 of 3 keys" in problem


def test_a_promise_must_be_kept_when_the_queues_are_empty(model: Model, block: Block) -> None:
    block.begin("a").acknowledge(is_promise=True)
    assert not block.is_settled
    assert find_problems(model, []) == []
    model.keep_promises()
    assert block.is_settled
    assert find_problems(model, []) != []


def test_rows_that_are_twice_old_deleted_or_unknown_are_problems(
    model: Model, block: Block
) -> None:
    block.begin("a").acknowledge(is_promise=False)
    assert "twice" in find_problems(model, [*rows("a"), *rows("a", 2)])[0]
    block.begin("b").acknowledge(is_promise=False)
    assert "the values ['a'] (expected ['b'])" in find_problems(model, rows("a"))[0]
    assert "the values ['a', 'b']" in find_problems(model, rows("a", 1) + rows("b", 2, 3))[0]
    block.begin(None).acknowledge(is_promise=False)
    assert find_problems(model, []) == []
    assert "the values ['b'] (expected ['None'])" in find_problems(model, rows("b"))[0]
    assert "row (4, 'a') was never sent" in find_problems(model, [(4, "a")])[0]


def test_a_read_may_see_each_version_since_its_start(model: Model, block: Block) -> None:
    block.begin("a").acknowledge(is_promise=False)
    reading = model.begin_reading("t")
    block.begin("b").acknowledge(is_promise=False)
    other = model.add_block("t", (4,))
    other.begin("c").acknowledge(is_promise=False)
    assert model.check(reading, rows("a")) == model.check(reading, rows("b")) == []
    assert model.check(reading, [*rows("b"), (4, "c")]) == []
    assert model.check(reading, []) != []
    assert find_problems(model, rows("a")) != []


def test_the_receiver_keeps_the_export_with_the_largest_sequence(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    receiver = Receiver(random.Random(1), journal)
    for sequence, value in ((2, '{"v": "b"}'), (1, '{"v": "a"}'), (2, '{"v": "b"}')):
        body = f'{{"exports": [{{"key": "7", "sequence": {sequence}, "value": {value}}}]}}'
        assert receiver.respond(Request("/", {}, body.encode())).status == 200
    check_receiver(receiver, [(7, "b")], journal)
    assert journal.problems == []
    check_receiver(receiver, [(7, "a")], journal)
    assert [text.partition(",")[0] for text in journal.problems] == [
        "the receiver of exports lacks 1 rows",
        "the receiver of exports also has 1 rows",
    ]
    journal.close()
