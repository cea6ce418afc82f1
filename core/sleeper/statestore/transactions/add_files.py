"""Ingests and bulk imports become durable: a job's files, all at once."""

import base64
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from sleeper.clock import iso_time
from sleeper.files.data_file import DataFile, run_start_of
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Key, KeyValue
from sleeper.statestore.file_rows import fault_of, find_file, insert_file
from sleeper.statestore.fold import Fold
from sleeper.statestore.outcome import APPLY, Verdict, refused
from sleeper.statestore.partition_rows import PartitionRow, ancestor_keys, find_partition
from sleeper.statestore.transactions.transaction import Transaction


def value_to_json(value: KeyValue | None) -> Any:
    return {"b": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def value_from_json(raw: Any) -> Any:
    return base64.b64decode(raw["b"]) if isinstance(raw, dict) else raw


def key_to_json(key: Key) -> list[Any]:
    return [value_to_json(v) for v in key]


def key_from_json(raw: list[Any]) -> Key:
    return tuple(value_from_json(v) for v in raw)


def file_to_json(file: DataFile) -> dict[str, Any]:
    """Without the numbers of its content, which the state store gives."""
    raw: dict[str, Any] = {
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "smallest": key_to_json(file.smallest_key),
        "largest": key_to_json(file.largest_key),
        "schema": file.schema_version,
    }
    if file.sidecars:
        raw["sidecars"] = list(file.sidecars)
    return raw


def file_from_json(raw: dict[str, Any]) -> DataFile:
    return DataFile(
        raw["path"],
        raw["rows"],
        raw["bytes"],
        key_from_json(raw["smallest"]),
        key_from_json(raw["largest"]),
        raw["schema"],
        tuple(raw.get("sidecars", ())),
    )


def partition_to_json(partition: Partition) -> dict[str, Any]:
    return {
        "id": partition.id,
        "parent": partition.parent_id,
        "leaf": partition.is_leaf,
        "ranges": [[value_to_json(r.min), value_to_json(r.max)] for r in partition.region.ranges],
    }


def partition_from_json(raw: dict[str, Any]) -> Partition:
    ranges = (Range(value_from_json(low), value_from_json(high)) for low, high in raw["ranges"])
    return Partition(raw["id"], Region(tuple(ranges)), raw["parent"], raw["leaf"])


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file with how many of its rows lie in which partition; together all its rows."""

    file: DataFile
    rows_by_partition: tuple[tuple[PartitionId, int], ...]


@dataclass(frozen=True, slots=True)
class AddFiles(Transaction):
    """Adds a job's files under the job's id; a job that found no rows has none.

    A partition that was split since the run began still takes its references: they stay
    there and are pushed down later. `request` describes what the job was asked to do
    (its input files): if given, the same id with the same request is already done, even
    when this run wrote files of its own; without it the files themselves are compared.
    """

    kind: ClassVar[str] = "add_files"
    id: str
    run_start_ms: int
    files: tuple[NewFile, ...]
    request: str | None = None

    def validate(self, fold: Fold) -> Verdict:
        fault = fault_of_run(fold, self.run_start_ms, [n.file.path for n in self.files])
        if fault is None and len({n.file.path for n in self.files}) < len(self.files):
            fault = f"job {self.id} names a file twice"
        for new in self.files:
            fault = fault or _fault_of_new_file(fold, new)
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        number = fold.next_number
        for new in self.files:
            references = []
            for partition_id, rows in new.rows_by_partition:
                partition = find_partition(fold, partition_id)
                assert partition is not None
                references.append((partition.key, rows))
            insert_file(fold, new.file, (number, number), references)

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = {
            "run_start": self.run_start_ms,
            "files": [
                {**file_to_json(n.file), "references": [list(r) for r in n.rows_by_partition]}
                for n in self.files
            ],
        }
        if self.request is not None:
            raw["request"] = self.request
        return raw

    @classmethod
    def from_json(cls, transaction_id: str, raw: dict[str, Any]) -> Self:
        files = (
            NewFile(file_from_json(f), tuple((p, rows) for p, rows in f["references"]))
            for f in raw["files"]
        )
        return cls(transaction_id, raw["run_start"], tuple(files), raw.get("request"))


def fault_of_run(fold: Fold, run_start_ms: int, paths: list[str]) -> str | None:
    """Why a run may not commit these new files now; None if it may.

    The orphan collector goes by the run start in a file's name, so that one counts too.
    """
    starts = [s for s in (run_start_of(p) for p in paths) if s is not None]
    oldest_ms = min([run_start_ms, *starts])
    if oldest_ms < fold.run_bar_ms:
        return (
            f"the run began at {iso_time(oldest_ms)}, and runs that began before "
            f"{iso_time(fold.run_bar_ms)} are barred: their files may be collected"
        )
    age_ms = fold.time_ms - oldest_ms
    if age_ms > fold.orphan_age_ms // 2:
        return (
            f"the run began {age_ms} ms ago, more than half the orphan age of "
            f"{fold.orphan_age_ms} ms: its files may be collected"
        )
    for path in paths:
        if find_file(fold, path) is not None:
            return f"file {path} is known already: every run writes to fresh names"
    return None


def _fault_of_new_file(fold: Fold, new: NewFile) -> str | None:
    partitions: list[PartitionRow] = []
    for partition_id, rows in new.rows_by_partition:
        partition = find_partition(fold, partition_id)
        if partition is None:
            return f"file {new.file.path} refers to partition {partition_id}, which is unknown"
        if rows < 1:
            return f"file {new.file.path} has {rows} rows in partition {partition_id}: at least 1"
        partitions.append(partition)
    if not partitions:
        return f"file {new.file.path} comes without a reference"
    return (
        fault_of(new.file, partitions[0].region)
        or _fault_of_rows(new, partitions)
        or _fault_of_overlap(fold, new.file.path, partitions)
    )


def _fault_of_rows(new: NewFile, partitions: list[PartitionRow]) -> str | None:
    """Every row must belong to a partition, or it would be there and never be seen."""
    file = new.file
    referenced = sum(rows for _, rows in new.rows_by_partition)
    if referenced != file.rows:
        return f"file {file.path} has {file.rows} rows, its references {referenced}"
    if len(partitions) == 1:
        inside = partitions[0].region.contains_bounds(file.smallest_key, file.largest_key)
    else:
        inside = all(
            p.region.overlaps_bounds(file.smallest_key, file.largest_key) for p in partitions
        )
    return None if inside else f"file {file.path} has keys outside of its partitions"


def _fault_of_overlap(fold: Fold, path: str, partitions: list[PartitionRow]) -> str | None:
    keys = {p.key for p in partitions}
    if len(keys) < len(partitions):
        return f"file {path} refers to a partition twice"
    if len(keys) > 1 and not all(p.is_leaf for p in partitions):
        for partition in partitions:
            if not keys.isdisjoint(ancestor_keys(fold, partition.key)):
                return f"file {path} refers to a partition and to one inside it"
    return None
