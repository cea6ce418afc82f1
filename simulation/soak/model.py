"""The rows that each table may have.

A *block* is a set of keys that operations write or delete as a whole, each row with the same value.
A block has a history of *versions*: a value, or None for no rows. A version is *certain* once its
operation was acknowledged, and *promised* if a queue acknowledged a message that makes it. A read
is correct if each block has all of its rows with one value, of a version that the block may have
had while the read ran: the last one that was certain at its start, or a later one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Row = tuple[int, str]
_PROBLEMS_MAX = 5


@dataclass(slots=True)
class Version:
    """What an operation makes of a block."""

    value: str | None
    is_certain: bool = False
    is_promised: bool = False


@dataclass(slots=True)
class Block:
    """Keys of a table, and their versions, in the order in which operations began.

    It is `busy` while an operation on it has not ended, and `frozen` if its outcome stays unknown.
    """

    name: str
    table: str
    keys: tuple[int, ...]
    versions: list[Version] = field(default_factory=lambda: [Version(None, is_certain=True)])
    is_busy: bool = False
    is_frozen: bool = False

    @property
    def last_certain(self) -> int:
        """The position of the newest certain version."""
        return max(i for i, version in enumerate(self.versions) if version.is_certain)

    @property
    def is_settled(self) -> bool:
        """Whether the rows are known, and an operation may change them."""
        return not self.is_busy and not self.is_frozen and self.versions[-1].is_certain

    def begin(self, value: str | None) -> "Change":
        """Adds a version that an operation now makes."""
        assert self.is_settled
        self.is_busy = True
        self.versions.append(Version(value))
        return Change(self, self.versions[-1])


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of an operation on a block."""

    block: Block
    version: Version

    def acknowledge(self, is_promise: bool) -> None:
        """The operation succeeded: its effect is there, or will be when the queues are empty."""
        self.version.is_certain, self.version.is_promised = not is_promise, is_promise
        self.block.is_busy = False

    def abandon(self) -> None:
        """The outcome is never known."""
        self.block.is_busy, self.block.is_frozen = False, True


@dataclass(frozen=True, slots=True)
class Reading:
    """A read of a table that began when these versions were the newest certain ones."""

    table: str
    positions: Mapping[str, int]


class Model:
    """The blocks of all tables."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self._keys: dict[str, dict[int, Block]] = defaultdict(dict)

    def add_block(self, table: str, keys: Iterable[int]) -> Block:
        """Adds a block without rows."""
        block = Block(f"{table}-{len(self.blocks)}", table, tuple(keys))
        taken = self._keys[table]
        assert not any(key in taken for key in block.keys)
        taken.update(dict.fromkeys(block.keys, block))
        self.blocks[block.name] = block
        return block

    def of_table(self, table: str) -> list[Block]:
        """Returns the blocks of a table."""
        return [block for block in self.blocks.values() if block.table == table]

    def keep_promises(self) -> None:
        """Makes the promised versions certain, because the queues have drained."""
        for block in self.blocks.values():
            for version in block.versions:
                version.is_certain |= version.is_promised

    def begin_reading(self, table: str) -> Reading:
        """Returns the start of a read."""
        return Reading(table, {block.name: block.last_certain for block in self.of_table(table)})

    def check(self, reading: Reading, rows: Iterable[Row]) -> list[str]:
        """Returns what is wrong with the rows of a read that ends now, at most five problems."""
        blocks = self._keys[reading.table]
        counts: dict[str, Counter[Row]] = defaultdict(Counter)
        problems: list[str] = []
        for row in rows:
            block = blocks.get(row[0])
            if block is None:
                problems.append(f"row {row} was never sent")
            else:
                counts[block.name][row] += 1
        for block in self.of_table(reading.table):
            position = reading.positions.get(block.name, 0)
            problems += _check_block(block, position, counts[block.name])
        return [f"table {reading.table}: {text}" for text in problems[:_PROBLEMS_MAX]]


def _check_block(block: Block, position: int, rows: Counter[Row]) -> list[str]:
    values = {version.value for version in block.versions[position:]}
    seen = {value for _, value in rows}
    allowed = sorted(str(value) for value in values)
    if not rows:
        missing = f"block {block.name} has no rows (expected the value {allowed})"
        return [] if None in values else [missing]
    problems = []
    if len(seen) > 1 or not seen <= values:
        problems.append(f"block {block.name} has the values {sorted(seen)} (expected {allowed})")
    if len({key for key, _ in rows}) < len(block.keys):
        count = len({key for key, _ in rows})
        problems.append(f"block {block.name} has {count} of {len(block.keys)} keys")
    repeated = [row for row, count in rows.items() if count > 1]
    if repeated:
        problems.append(f"block {block.name}: {len(repeated)} rows are there twice")
    return problems
