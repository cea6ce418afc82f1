"""The operations of a soak: commands with their effect on the model, chosen at random."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from simulation.soak.model import Block, Change, Model, Reading
from simulation.soak.tables import APPENDING, EXPORTED, LATEST, QUEUE, SNAPSHOT, TABLES
from simulation.soak.world import Upload, World

_STRIDE = 1 << 20
_RUN_KEYS = 1000
_ROWS = (40, 300)
_TRIES = 6
_ABANDONED = 0.15
_LATEST_BLOCKS = 12


@dataclass
class Operation:
    """A command, with what it changes or reads.

    Success of a command with `is_promise` means that a queue has its job. One with `tries` is
    repeated if its outcome is unknown: its id makes that safe. `next` follows its success.
    """

    kind: str
    arguments: Sequence[str]
    change: Change | None = None
    is_promise: bool = False
    tries: int = 1
    reading: Reading | None = None
    read: Callable[[dict[str, Any]], list[tuple[int, str]] | None] = lambda _: None
    uploads: Sequence[Upload] = ()
    is_spark: bool = False
    next: "Operation | None" = None

    @property
    def job(self) -> str:
        """The command without names of files, for the journal."""
        return " ".join(str(each) for each in self.arguments)[:200]


class Workload:
    """Chooses operations. Its random numbers alone determine them, apart from what failed."""

    def __init__(self, model: Model, world: World, chance: random.Random) -> None:
        self.model = model
        self.world = world
        self.queries: list[tuple[str, Reading]] = []
        self.backups: list[tuple[str, dict[str, Reading]]] = []
        self._chance = chance
        self._count = 0
        self._folder = world.folder / "files"
        self._folder.mkdir()
        self._make: dict[str, tuple[int, Callable[[], Operation | None]]] = {
            "ingest": (12, self._ingest),
            "submitted ingest": (10, self._submitted_ingest),
            "batched ingest": (5, self._batched_ingest),
            "upsert": (8, self._upsert),
            "snapshot load": (3, self._snapshot_load),
            "delete by range": (3, self._delete_range),
            "delete by key file": (4, self._delete_keys),
            "submitted delete": (3, self._submitted_delete),
            "query": (8, self._query),
            "stream": (2, self._stream),
            "query by message": (3, self._query_by_message),
            "stash": (2, self._stash),
            "backup": (1, self._backup),
            "purge": (1, self._purge),
            "compact": (2, self._upkeep("compact", "--all")),
            "split": (2, self._upkeep("split")),
            "collect": (2, self._upkeep("gc")),
            "collect orphans": (1, self._upkeep("gc", "--orphans")),
            "state snapshot": (1, self._upkeep("snapshot", "take")),
            "drain exports": (1, self._drain_exports),
            "status": (1, lambda: Operation("status", ["status"])),
        }

    def choose(self) -> Operation:
        """Returns the next operation."""
        kinds, weights = [*self._make], [weight for weight, _ in self._make.values()]
        while True:
            (kind,) = self._chance.choices(kinds, weights)
            operation = self._make[kind][1]()
            if operation is not None:
                return operation

    def choose_spark(self) -> Operation:
        """Returns an operation of a Spark session: a bulk import, a write of a frame, or a read."""
        kind = self._chance.choice(["bulk import", "spark write", "spark write", "spark read"])
        if kind == "spark read":
            return self._reading(
                kind, ["spark-read"], self._chance.choice(APPENDING), is_spark=True
            )
        table, block, value = self._new_rows()
        change, path = block.begin(value), self._write(block, value)
        command, source = "spark-write", str(path)
        uploads: Sequence[Upload] = ()
        if kind == "bulk import":
            command, source = "bulk-import", self.world.source(path)
            uploads = self.world.uploads(path)
        arguments = [command, table, source, self._next("job")]
        tries = self._tries()
        return Operation(kind, arguments, change, tries=tries, uploads=uploads, is_spark=True)

    def _next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}-{self._count}"

    def _tries(self) -> int:
        return 1 if self._chance.random() < _ABANDONED else _TRIES

    def _write(self, block: Block, value: str) -> Path:
        path = self._folder / f"{value}.parquet"
        keys = list(block.keys)
        self._chance.shuffle(keys)
        pq.write_table(pa.table({"k": pa.array(keys, pa.int64()), "v": [value] * len(keys)}), path)
        return path

    def _new_block(self, table: str) -> Block:
        number, count = len(self.model.blocks), self._chance.randint(*_ROWS)
        if self._chance.random() < 0.5:
            # Keys between those of all other blocks.
            chosen = self._chance.sample(range(_STRIDE), count)
            return self.model.add_block(table, (key * _STRIDE + number for key in chosen))
        first = -(number + 1) * _RUN_KEYS
        return self.model.add_block(table, range(first, first + count))

    def _new_rows(self) -> tuple[str, Block, str]:
        """Returns a new block, or one whose rows were deleted, with a new value."""
        table = self._chance.choice(APPENDING)
        empty = [
            block
            for block in self.model.of_table(table)
            if block.is_settled and block.versions[-1].value is None and len(block.versions) > 1
        ]
        is_new = not empty or self._chance.random() < 0.6
        block = self._new_block(table) if is_new else self._chance.choice(empty)
        return table, block, self._next("value")

    def _ingest(self, *options: str, kind: str = "ingest") -> Operation:
        table, block, value = self._new_rows()
        change, path = block.begin(value), self._write(block, value)
        arguments = ["ingest", table, self.world.source(path), "--job-id", self._next("job")]
        is_promise, uploads = "--submit" in options, self.world.uploads(path)
        tries = self._tries()
        return Operation(kind, [*arguments, *options], change, is_promise, tries, uploads=uploads)

    def _submitted_ingest(self) -> Operation:
        return self._ingest("--submit", kind="submitted ingest")

    def _batched_ingest(self) -> Operation:
        table, block, value = self._new_rows()
        change, path = block.begin(value), self._write(block, value)
        arguments = ["ingest", table, self.world.source(path), "--batch"]
        uploads = self.world.uploads(path)
        return Operation("batched ingest", arguments, change, is_promise=True, uploads=uploads)

    def _upsert(self) -> Operation | None:
        blocks = self.model.of_table(LATEST)
        if len(blocks) < _LATEST_BLOCKS:
            blocks.append(self._new_block(LATEST))
        return self._load_one("upsert", blocks)

    def load_snapshot(self) -> Operation:
        """Returns the first load of the snapshot table, which cannot be read before it."""
        return self._load("snapshot load", self._new_block(SNAPSHOT))

    def _snapshot_load(self) -> Operation | None:
        return self._load_one("snapshot load", self.model.of_table(SNAPSHOT))

    def _load_one(self, kind: str, blocks: list[Block]) -> Operation | None:
        settled = [block for block in blocks if block.is_settled]
        return self._load(kind, self._chance.choice(settled)) if settled else None

    def _load(self, kind: str, block: Block) -> Operation:
        value = self._next("value")
        change, path = block.begin(value), self._write(block, value)
        arguments = ["ingest", block.table, str(path), "--job-id", self._next("job")]
        return Operation(kind, arguments, change, tries=_TRIES)

    def _deletable(self, is_run: bool) -> Block | None:
        blocks = [
            block
            for table in (*APPENDING, LATEST)
            for block in self.model.of_table(table)
            if block.is_settled and block.versions[-1].value is not None
        ]
        chosen = [block for block in blocks if (block.keys[0] < 0) == is_run]
        return self._chance.choice(chosen) if chosen else None

    def _delete_range(self, *options: str, kind: str = "delete by range") -> Operation | None:
        block = self._deletable(is_run=True)
        if block is None:
            return None
        keys = f"{block.keys[0]}:{block.keys[-1] + 1}"
        arguments = ["delete", block.table, "--range", keys, "--id", self._next("delete")]
        is_promise = "--submit" in options
        tries = self._tries()
        return Operation(kind, [*arguments, *options], block.begin(None), is_promise, tries)

    def _submitted_delete(self) -> Operation | None:
        return self._delete_range("--submit", kind="submitted delete")

    def _delete_keys(self) -> Operation | None:
        block = self._deletable(is_run=False)
        if block is None:
            return None
        delete = self._next("delete")
        path = self._folder / f"{delete}.parquet"
        pq.write_table(pa.table({"k": pa.array(block.keys, pa.int64())}), path)
        arguments = ["delete", block.table, "--keys-from", str(path), "--id", delete]
        return Operation("delete by key file", arguments, block.begin(None), tries=self._tries())

    def _reading(
        self, kind: str, arguments: list[str], table: str, *more: str, is_spark: bool = False
    ) -> Operation:
        path = self._folder / f"{self._next('read')}.parquet"
        return Operation(
            kind,
            [*arguments, table, *(each.replace("FILE", str(path)) for each in more or ("FILE",))],
            reading=self.model.begin_reading(table),
            read=lambda _: _read_and_delete(path),
            is_spark=is_spark,
        )

    def query(self, table: str) -> Operation:
        """Returns a query of all rows of a table."""
        return self._reading("query", ["query"], table, "--format", "parquet", "--output", "FILE")

    def _query(self) -> Operation:
        return self.query(self._chance.choice(TABLES))

    def _stream(self) -> Operation:
        seconds = str(self._chance.randint(1, 8))
        return self._reading("stream", ["stream"], self._chance.choice(TABLES), "FILE", seconds)

    def _query_by_message(self) -> Operation:
        table, query = self._chance.choice(TABLES), self._next("query")
        path = self._folder / f"{query}.json"
        regions = [{"k": {"min": None, "max": None}}]
        message = {"type": "Query", "queryId": query, "tableName": table, "regions": regions}
        path.write_text(json.dumps(message))
        self.queries.append((query, self.model.begin_reading(table)))
        return Operation("query by message", ["queries", "send", str(path)])

    def _stash(self) -> Operation:
        """Returns a stash. Once it is complete, it is read."""
        table = self._chance.choice((*APPENDING, LATEST))
        destination = self.world.destination(self._next("stash"))
        read = self._reading("read stash", ["read-stash", destination], table)
        arguments = ["stash", "run", "--destination", destination, "--table", table]
        return Operation("stash", arguments, next=read)

    def _backup(self) -> Operation:
        destination = self.world.destination(self._next("backup"))
        readings = {table: self.model.begin_reading(table) for table in TABLES}

        def note(_: dict[str, Any]) -> None:
            self.backups.append((destination, readings))

        return Operation("backup", ["backup", destination], read=note)

    def _purge(self) -> Operation:
        return Operation("purge", ["purge", self._chance.choice(APPENDING)])

    def _upkeep(self, command: str, *options: str) -> Callable[[], Operation]:
        def make() -> Operation:
            table = self._chance.choice(TABLES)
            words = (
                [command, *options, table] if command == "snapshot" else [command, table, *options]
            )
            return Operation(" ".join([command, *options]), words)

        return make

    def _drain_exports(self) -> Operation:
        assert EXPORTED in TABLES
        return Operation("drain exports", ["export-queue", "drain", QUEUE, "--seconds", "5"])


def _read_and_delete(path: Path) -> list[tuple[int, str]]:
    table = pq.read_table(path)
    path.unlink()
    return list(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))
