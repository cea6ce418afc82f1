"""Export queues of a table, and exports that transactions attach (design note 0016)."""

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from sleeper.json_codec import Conversion, MismatchError
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)

FOLLOWER_PREFIX = "export-queue:"
"""The name of a queue's follower begins with it."""

TRANSACTION_SOURCE = "transaction"
"""The source of queues whose exports are attached to transactions."""

COMPACTION_SOURCE = "compaction"
"""The source of queues that export the rows of files that compactions wrote."""


def follower_of(queue: str) -> str:
    """Returns the name of the queue's follower."""
    return f"{FOLLOWER_PREFIX}{queue}"


def _find_queue(fold: Fold, name: str) -> Any:
    sql = "SELECT generation, source, definition FROM export_queues WHERE name = ?"
    return fold.row(sql, (name,))


@dataclass(frozen=True, slots=True)
class CreateExportQueue(Transaction):
    """Adds a queue, whose generation is the number of this transaction, and its follower.

    `definition` is the JSON of `sleeper.export_queue.definition.ExportQueue`, opaque here.
    A repetition with the same definition is already done.
    """

    kind: ClassVar[str] = "create_export_queue"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    name: str
    source: str
    definition: str

    def validate(self, fold: Fold) -> Verdict:
        result = _find_queue(fold, self.name)
        if result is None:
            return APPLY
        if (result[1], result[2]) == (self.source, self.definition):
            return already_done(f"created by transaction {result[0]}")
        return refused(f"export queue {self.name} already exists with another definition")

    def apply(self, fold: Fold) -> None:
        number = fold.next_number
        # The log is read by entries, so a queue of its exports begins with this one.
        start = fold.entry_first - 1 if self.source == TRANSACTION_SOURCE else number
        follower = follower_of(self.name)
        fold.run(
            "INSERT INTO followers VALUES (?, ?, ?)", (follower, f"{follower}@{number}", start)
        )
        fold.run(
            "INSERT INTO export_queues VALUES (?, ?, ?, ?)",
            (self.name, number, self.source, self.definition),
        )


@dataclass(frozen=True, slots=True)
class ChangeExportQueue(Transaction):
    """Replaces the definition of a queue. Its source, keys, values and buckets must not change."""

    kind: ClassVar[str] = "change_export_queue"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    name: str
    generation: int
    definition: str

    def validate(self, fold: Fold) -> Verdict:
        result = _find_queue(fold, self.name)
        if result is None or result[0] != self.generation:
            return refused(f"export queue {self.name} does not exist any more")
        return already_done("unchanged") if result[2] == self.definition else APPLY

    def apply(self, fold: Fold) -> None:
        sql = "UPDATE export_queues SET definition = ? WHERE name = ?"
        fold.run(sql, (self.definition, self.name))


@dataclass(frozen=True, slots=True)
class DeleteExportQueue(Transaction):
    """Removes a queue and its follower. Exports that it has not captured are lost."""

    kind: ClassVar[str] = "delete_export_queue"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    name: str

    def validate(self, fold: Fold) -> Verdict:
        if _find_queue(fold, self.name) is None:
            return already_done(f"export queue {self.name} does not exist")
        return APPLY

    def apply(self, fold: Fold) -> None:
        fold.run("DELETE FROM export_queues WHERE name = ?", (self.name,))
        fold.run("DELETE FROM followers WHERE name = ?", (follower_of(self.name),))


def _to_bytes(raw: Any) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise MismatchError(raw, "base64 text") from None


def _to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


@dataclass(frozen=True, slots=True)
class QueueExports:
    """Exports for one queue, of which no two have the same key.

    `rows` is an Arrow IPC stream of the columns `__gone`, keys and values.
    """

    queue: str
    generation: int
    exports: int
    rows: Annotated[bytes, Conversion(_to_bytes, _to_base64)]


@dataclass(frozen=True, slots=True)
class ExportRows(Transaction):
    """Exports rows to queues. It is committed together with the change that they belong to.

    The number of this transaction is the sequence number of its exports.
    """

    kind: ClassVar[str] = "export_rows"
    subject: ClassVar[Subject] = Subject.TABLE
    queues: tuple[QueueExports, ...]

    def validate(self, fold: Fold) -> Verdict:
        if not self.queues or any(each.exports < 1 for each in self.queues):
            return refused(f"transaction {self.id} has no exports")
        if len({each.queue for each in self.queues}) < len(self.queues):
            return refused(f"transaction {self.id} names an export queue twice")
        for each in self.queues:
            result = _find_queue(fold, each.queue)
            if result is None or result[0] != each.generation:
                return refused(f"export queue {each.queue} does not exist")
            if result[1] != TRANSACTION_SOURCE:
                return refused(
                    f"export queue {each.queue} exports the rows of each {result[1]} "
                    "(expected a queue on transactions)"
                )
        return APPLY

    def effect(self) -> Effect:
        return Effect(rows=sum(each.exports for each in self.queues))

    def apply(self, fold: Fold) -> None:
        """Changes nothing: queues read the exports from the log."""
