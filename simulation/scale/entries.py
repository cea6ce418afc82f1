"""Sizes of the log's entries, from the real codec: what an append costs in write units.

An append moves the head and puts the entry in one transaction of DynamoDB, so it takes two units
for the head and two for each KiB of the entry. The body of a large entry goes to S3, and its item
is small.
"""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from sleeper.aws.transaction_log import compress_body
from sleeper.files import DataFile
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.codec import encode
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
)
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.systems import load

# Key, numbers, time, write ids and format of an item, with the names of these attributes.
_ITEM_BYTES = 230
_KIB = 1024
_INLINE_BYTES_MAX: int = load("sleeper.aws.transaction_log:_INLINE_BYTES_MAX")
_TABLE = "0123abcd"
_NOW_MS = 1_800_000_000_000


def append_units(body_bytes: int) -> int:
    """Returns the write units of an append whose body has so many bytes, compressed."""
    inline = body_bytes if body_bytes <= _INLINE_BYTES_MAX else 0
    return 2 + 2 * -(-(inline + _ITEM_BYTES) // _KIB)


@cache
def add_files_bytes(references: int, commits: int = 1, seed: int = 0) -> int:
    """Returns the compressed bytes of commits of a file each, with so many references."""
    random = Random(seed)
    return _bytes([_add_files(random, references) for _ in range(commits)])


@cache
def compaction_bytes(inputs: int, commits: int = 1, seed: int = 0) -> int:
    """Returns the compressed bytes of commits of compactions with so many inputs."""
    random = Random(seed)
    return _bytes([_commit_compaction(random, inputs) for _ in range(commits)])


def assignment_bytes(jobs: int, inputs: int, seed: int = 0) -> int:
    """Returns the compressed bytes of the assignment of jobs with so many inputs each."""
    random = Random(seed)
    claims = tuple(
        JobAssignment(_hex(random), _partition(random), _paths(random, inputs), _NOW_MS)
        for _ in range(jobs)
    )
    return _bytes([AssignFiles(claims, id=_hex(random))])


def entry_bytes() -> dict[str, Any]:
    """Returns sizes of entries of several shapes."""
    return {
        "add_files, references": {n: add_files_bytes(n) for n in (1, 10, 100, 1000, 10_000)},
        "add_files, 1 reference, commits": {n: add_files_bytes(1, n) for n in (1, 10)},
        "commit_compaction, inputs": {n: compaction_bytes(n) for n in (2, 12)},
        "commit_compaction, 12 inputs, commits": {n: compaction_bytes(12, n) for n in (1, 10)},
        "assign_files, 12 inputs, jobs": {n: assignment_bytes(n, 12) for n in (1, 100)},
    }


def _bytes(transactions: Sequence[Transaction]) -> int:
    return len(compress_body("\n".join(encode(each).line for each in transactions)))


def _add_files(random: Random, references: int) -> AddFiles:
    rows = tuple((_partition(random), random.randrange(1, 10_000)) for _ in range(references))
    file = _file(random, sum(count for _, count in rows))
    return AddFiles(_hex(random), _NOW_MS, (NewFile(file, rows),), f"s3://b/{_hex(random)}")


def _commit_compaction(random: Random, inputs: int) -> CommitCompaction:
    job_id = _hex(random)
    paths, output = _paths(random, inputs), _file(random, 100_000)
    return CommitCompaction(job_id, _partition(random), paths, output, _NOW_MS)


def _file(random: Random, rows: int) -> DataFile:
    low = random.randrange(2**62)
    sidecars = (".sketches", ".filter", ".checksum")
    return DataFile(_path(random), rows, rows * 21, (low,), (low + 2**40,), 1, sidecars)


def _paths(random: Random, count: int) -> tuple[str, ...]:
    return tuple(_path(random) for _ in range(count))


def _path(random: Random) -> str:
    name = f"{_NOW_MS}-{_hex(random)[:16]}"
    return f"{_TABLE}/data/partition_{_partition(random)}/{name}.parquet"


def _partition(random: Random) -> PartitionId:
    return PartitionId(_hex(random)[:12])


def _hex(random: Random) -> str:
    return f"{random.getrandbits(128):032x}"
