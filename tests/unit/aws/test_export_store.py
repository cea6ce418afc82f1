"""What only the storage of export queues on DynamoDB does; the contract suite has the rest."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from sleeper.errors import DataError, NotFoundError, UnavailableError
from sleeper.export_queue.aws.store import DynamoExportStore
from sleeper.export_queue.properties import EXPORT_QUEUES_TABLE
from sleeper.export_queue.store import NewDeadLetter, NewItem, Position
from tests.servers.dynoxide import DynamoServer, DynamoTables

LARGE = b"x" * 50_000


@pytest.fixture
def tables(dynamo_server: DynamoServer) -> DynamoTables:
    return dynamo_server.make_tables()


@pytest.fixture
def open_store(tables: DynamoTables, tmp_path: Path) -> Callable[..., DynamoExportStore]:
    objects, name = LocalStore(tmp_path), tables.name(EXPORT_QUEUES_TABLE)
    return lambda client=tables.client, **clock: DynamoExportStore(client, name, objects, **clock)


@pytest.fixture
def store(open_store: Callable[..., DynamoExportStore]) -> DynamoExportStore:
    found = open_store()
    found.register("q", "t")
    found.begin("q", 3, Position(3))
    return found


class DyingClient:
    """A client whose process dies at the n-th call of a method."""

    def __init__(self, client: Any, method: str, calls: int) -> None:
        self._client, self._deadly, self._left = client, method, calls

    def __getattr__(self, name: str) -> Any:
        if name == self._deadly:
            self._left -= 1
            if self._left < 0:
                raise UnavailableError("the process died")
        return getattr(self._client, name)


@contextmanager
def written_units(client: Any) -> Iterator[Counter[str]]:
    """Counts write request units by operation, for items of up to 1 KiB."""
    units: Counter[str] = Counter()

    def count(model: Any, params: Any, **_: Any) -> None:
        name = model.name
        if name == "TransactWriteItems":
            units[name] += 2 * len(json.loads(params["body"])["TransactItems"])
        elif name in ("PutItem", "UpdateItem", "DeleteItem"):
            units[name] += 1

    client.meta.events.register("before-call.dynamodb", count)
    yield units
    client.meta.events.unregister("before-call.dynamodb", count)


def objects_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_bucket_costs_twelve_write_units_and_a_step_one(
    store: DynamoExportStore, tables: DynamoTables
) -> None:
    """docs/export-queues-on-aws.md derives the cost from these."""
    with written_units(tables.client) as units:
        store.add("q", 3, [NewItem(n, "1", 100, b"x") for n in range(3)], Position(4))
        assert units == {"TransactWriteItems": 3 * 4, "UpdateItem": 1}
        units.clear()
        for bucket in range(3):
            assert store.claim("q", bucket, "w", 60)
            items = store.read("q", bucket, 1 << 20)
            store.settle("q", bucket, "w", [each.id for each in items])
            store.release("q", bucket, "w")
        # Deletion with the counts of the bucket, and of its state; the claim and the oldest time.
        assert units == {"TransactWriteItems": 3 * (4 + 2), "UpdateItem": 3 * 2}


def test_large_contents_are_objects_that_are_deleted_with_their_items(
    store: DynamoExportStore, tmp_path: Path
) -> None:
    store.add("q", 3, [NewItem(0, "1", 1, LARGE), NewItem(0, "2", 1, b"small")], Position(4))
    assert len(objects_in(tmp_path / "export-queues" / "q")) == 1
    items = store.read("q", 0, 1 << 20)
    assert [each.content for each in items] == [LARGE, b"small"]
    assert store.claim("q", 0, "w", 60)
    dead = NewDeadLetter("d", 1, LARGE + b"!", "no")
    store.settle("q", 0, "w", [each.id for each in items], [dead])
    (kept,) = objects_in(tmp_path)
    assert kept.read_bytes() == LARGE + b"!"


def test_a_process_that_dies_while_it_adds_leaves_items_that_another_completes(
    store: DynamoExportStore, tables: DynamoTables, open_store: Callable[..., DynamoExportStore]
) -> None:
    items = [NewItem(bucket, "1", 1, b"%d" % bucket) for bucket in range(9)]
    with pytest.raises(UnavailableError):
        open_store(DyingClient(tables.client, "transact_write_items", 4)).add(
            "q", 3, items, Position(4)
        )
    assert store.find("q").position == Position(3)
    assert 0 < store.counts("q").pending < 9
    store.add("q", 3, items, Position(4))
    assert store.counts("q").pending == 9


def test_a_slow_writer_does_not_move_the_position_back(
    store: DynamoExportStore, tables: DynamoTables, open_store: Callable[..., DynamoExportStore]
) -> None:
    class OvertakenClient:
        """Another writer moves the position before this one does."""

        def __getattr__(self, name: str) -> Any:
            if name == "update_item":
                store.add("q", 3, [], Position(9))
            return getattr(tables.client, name)

    open_store(OvertakenClient()).add("q", 3, [], Position(5))
    assert store.find("q").position == Position(9)


def test_a_process_that_dies_while_it_settles_loses_no_dead_letter(
    store: DynamoExportStore, tables: DynamoTables, open_store: Callable[..., DynamoExportStore]
) -> None:
    store.add("q", 3, [NewItem(0, f"{n:03d}", 1, b"x") for n in range(200)], Position(4))
    ids = [each.id for each in store.read("q", 0, 1 << 20)]
    dead = [NewDeadLetter(f"{n}", 1, b"x", "no") for n in range(20)]
    assert store.claim("q", 0, "w", 60)
    dying = open_store(DyingClient(tables.client, "transact_write_items", 1))
    with pytest.raises(UnavailableError):
        dying.settle("q", 0, "w", ids, dead)
    assert store.counts("q").dead == 20
    assert store.counts("q").pending == 130
    store.settle("q", 0, "w", ids, dead)
    assert (store.counts("q").pending, store.counts("q").dead) == (0, 20)


def test_a_removal_that_died_is_completed_by_the_next_registration(
    store: DynamoExportStore, tables: DynamoTables, open_store: Callable[..., DynamoExportStore]
) -> None:
    store.add("q", 3, [NewItem(n, "1", 1, LARGE) for n in range(5)], Position(4))
    with pytest.raises(UnavailableError):
        open_store(DyingClient(tables.client, "batch_write_item", 3)).remove("q")
    assert store.list() == []
    with pytest.raises(NotFoundError):
        store.find("q")
    assert store.register("q", "other").generation == 0
    assert tables.rows(EXPORT_QUEUES_TABLE, "queue", "item") == [("#queues", "q")]


def test_only_old_objects_without_an_item_are_swept(
    store: DynamoExportStore, tmp_path: Path, open_store: Callable[..., DynamoExportStore]
) -> None:
    store.add("q", 3, [NewItem(0, "1", 1, LARGE)], Position(4))
    orphan = tmp_path / "export-queues" / "q" / "orphan"
    other = tmp_path / "export-queues" / "q2" / "orphan"
    other.parent.mkdir()
    for path in (orphan, other):
        path.write_bytes(LARGE)
    now_ms = orphan.stat().st_mtime_ns // 1_000_000
    assert open_store(clock=lambda: now_ms + 23 * 3_600_000).sweep("q") == 0
    assert open_store(clock=lambda: now_ms + 25 * 3_600_000).sweep("q") == 1
    assert not orphan.exists()
    assert other.exists()
    assert [each.content for each in store.read("q", 0, 1)] == [LARGE]


def test_an_item_without_its_object_is_an_error_that_names_it(
    store: DynamoExportStore, tmp_path: Path
) -> None:
    store.add("q", 3, [NewItem(4, "1", 1, LARGE)], Position(4))
    objects_in(tmp_path)[0].unlink()
    with pytest.raises(DataError, match=r"q#3#000004 1!1!50000!.*export-queues/q/"):
        store.read("q", 4, 1)
