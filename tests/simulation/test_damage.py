"""Damage of stored objects: it is named, repaired, and happens again in a replay."""

from types import SimpleNamespace
from typing import Any

import pytest

from simulation.damage import Damage
from simulation.faults import CHANGED, TRUNCATED, Faults, Profile

PATH = "table/data/partition_root/1-a.parquet"
CONTENT = bytes(range(100))


class Storage:
    """Objects of an instance."""

    def __init__(self) -> None:
        self.objects = {PATH: CONTENT, f"{PATH}.filter": CONTENT}
        self.stops = 0

    def stop_all(self) -> None:
        self.stops += 1

    def list_data(self) -> list[str]:
        return sorted(self.objects)

    def read_data(self, path: str) -> bytes | None:
        return self.objects.get(path)

    def write_data(self, path: str, content: bytes) -> None:
        self.objects[path] = content


def make(kind: str, only: frozenset[tuple[str, str]] | None = None) -> tuple[Damage, Storage, Any]:
    world: Any = SimpleNamespace(
        seed=1,
        faults=Faults(1, Profile({kind: 1.0}, (0.0,)), only),
        trace=SimpleNamespace(count=1000),
        scheduler=SimpleNamespace(current=None),
        note=lambda *_: None,
    )
    storage: Any = Storage()
    return Damage(world, storage), storage, world


def damaged(storage: Storage) -> list[str]:
    return [path for path, content in storage.objects.items() if content != CONTENT]


@pytest.mark.parametrize("kind", [TRUNCATED, CHANGED])
def test_an_object_is_damaged_and_repaired(kind: str) -> None:
    damage, storage, _ = make(kind)
    damage.look()
    [path] = damaged(storage)
    content = storage.objects[path]
    assert len(content) < len(CONTENT) if kind == TRUNCATED else len(content) == len(CONTENT)
    assert damage.explains(f"data file {path} is damaged")
    assert not damage.explains("data file table/data/partition_root/2-b.parquet is damaged")
    damage.repair()
    assert not damaged(storage)
    assert storage.stops == 2


def test_processes_have_time_between_changes() -> None:
    damage, storage, world = make(CHANGED)
    damage.look()
    damage.look()
    assert len(damaged(storage)) == 1
    world.trace.count += 1000
    damage.look()
    assert storage.stops == 2


def test_what_was_collected_is_not_restored() -> None:
    damage, storage, _ = make(CHANGED)
    damage.look()
    storage.objects.clear()
    damage.repair()
    assert not storage.objects


def test_a_replay_damages_the_same_object_or_leaves_it_out() -> None:
    damage, storage, world = make(CHANGED)
    damage.look()
    names = frozenset(world.faults.names)
    again, other, _ = make(CHANGED, names)
    again.look()
    assert other.objects == storage.objects
    without, whole, _ = make(CHANGED, frozenset())
    without.look()
    assert not damaged(whole)
