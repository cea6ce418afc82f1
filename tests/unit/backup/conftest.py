"""An instance with two tables of known rows, and a model of a process that is killed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.api import Instance
from sleeper.storage.location import DataRoot

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
PROPERTIES = {"sleeper.engine.threads": "1"}


class Killed(BaseException):
    """The process was killed here."""


@dataclass
class Kill:
    """Kills the process at a numbered write to a folder, or at another call."""

    left: int | None = None

    def point(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Killed

    def around(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.point()
            result = action(*arguments, **keywords)
            self.point()
            return result

        return call


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Kill:
    kill = Kill()
    replacing = DataRoot.replacing

    @contextmanager
    def watched(self: DataRoot, path: str) -> Iterator[Any]:
        kill.point()
        with replacing(self, path) as sink:
            yield sink
            kill.point()
        kill.point()

    monkeypatch.setattr(DataRoot, "replacing", watched)
    for name in ("create", "delete"):
        monkeypatch.setattr(DataRoot, name, kill.around(getattr(DataRoot, name)))
    return kill


def rows_of(*keys: int, value: str = "v") -> pa.Table:
    return pa.table({"k": keys, "v": [value] * len(keys)})


def list_keys(table: sleeper.Table, version: int | None = None) -> list[int]:
    keys: list[int] = table.query(as_of=version).to_arrow()["k"].to_pylist()
    return keys


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """Table `a` has rows in two leaves, a compacted file, and deletes; `b` has one file."""
    with sleeper.create_instance(tmp_path / "instance", PROPERTIES) as created:
        a = created.create_table("a", SCHEMA, {"sleeper.table.gc.delay.minutes": "0"}, [10])
        a.ingest(rows_of(1, 2, 3, 11, 12), job_id="first")
        a.ingest(rows_of(4, 13), job_id="second")
        a.delete(keys=[[2], [12]])
        created.create_table("b", SCHEMA).ingest(rows_of(7, 8))
        yield created


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "place"
