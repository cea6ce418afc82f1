"""A receiver of exports: another program, which survives the processes of the instance.

It keeps every export that it was sent, and answers like a bad one: some calls hang until after
their timeout and have their effect then, some refuse a few exports or all, in some the connection
breaks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from simulation.calls import Call, Calls, Fault
from simulation.model.values import comparable
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError

NAME_OPTION = "receiver"
_HANG_PROBABILITY = 0.01
_REFUSE_SOME_PROBABILITY = 0.05
_REFUSE_ALL_PROBABILITY = 0.02
_LATE_SECONDS = 5.0
# Some receivers are worse than others.
_BAD_PROBABILITY = 0.4
_BAD_FACTOR = 5.0

Key = tuple[Any, ...]
Value = tuple[Any, ...] | None
"""The values of the value fields in their order. None: the key is deleted."""


@dataclass(frozen=True, slots=True)
class Received:
    """One export as it was sent."""

    key: Key
    value: Value
    sequence: int


@dataclass(slots=True)
class Receiver:
    """What one receiver has, and whether it `is_bad`, which its first call decides.

    `offered` are the exports of calls that began, `newest` the last sequence of each key that it
    has. Dead letters come late after a redrive, so it is then not `is_ordered`.
    """

    exports: dict[tuple[Key, int], Value] = field(default_factory=dict)
    buckets: dict[Key, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    offered: set[tuple[Key, int]] = field(default_factory=set)
    newest: dict[Key, int] = field(default_factory=dict)
    is_ordered: bool = True
    is_bad: bool | None = None

    def offer(self, exports: Sequence[Received]) -> None:
        """Notes exports that a call begins with: each comes before the later ones of its key."""
        for each in exports:
            name = each.key, each.sequence
            is_late = self.newest.get(each.key, each.sequence) > each.sequence
            if self.is_ordered and is_late and name not in self.offered:
                self.problems.append(f"key {each.key}: {each.sequence} comes after a later one")
            self.offered.add(name)

    def take(self, bucket: int, exports: Sequence[Received]) -> None:
        """Stores exports, and notes what an exporter may not do."""
        order = [(each.key, each.sequence) for each in exports]
        if len(set(order)) < len(order):
            self.problems.append(f"bucket {bucket}: a key has a sequence twice in a batch")
        if any(a[0] == b[0] and a[1] > b[1] for a, b in pairwise(order)):
            self.problems.append(f"bucket {bucket}: the exports of a key are not in order")
        for each in exports:
            if self.buckets.setdefault(each.key, bucket) != bucket:
                self.problems.append(f"key {each.key} came from bucket {bucket} and another one")
            self.newest[each.key] = max(self.newest.get(each.key, 0), each.sequence)
            former = self.exports.setdefault((each.key, each.sequence), each.value)
            if former != each.value:
                self.problems.append(
                    f"key {each.key} at {each.sequence} is {former} and {each.value}"
                )


class Receivers:
    """The receivers of a history, by their names, and the calls by which they are reached."""

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self._receivers: dict[str, Receiver] = {}

    def attach(self, calls: Calls) -> None:
        """Begins a history without receivers."""
        self._calls, self._receivers = calls, {}

    @property
    def calls(self) -> Calls:
        """The calls of the world."""
        assert self._calls is not None, "no world is attached"
        return self._calls

    def find(self, name: str) -> Receiver:
        """Returns the receiver of the name, a new one the first time."""
        return self._receivers.setdefault(name, Receiver())


RECEIVERS = Receivers()
"""The receivers of the history of this process of the system."""


class RecordingExporter:
    """The exporter that a queue names: sends to the receiver of its option."""

    def __init__(self, options: dict[str, str]) -> None:
        self._name = options[NAME_OPTION]

    def export(self, batch: ExportBatch) -> None:
        """Sends a batch, see `sleeper.export_queue.exporter.Exporter`."""
        calls, receiver = RECEIVERS.calls, RECEIVERS.find(self._name)
        exports = received_exports(batch)
        receiver.offer(exports)
        if receiver.is_bad is None:
            receiver.is_bad = calls.choose(_BAD_PROBABILITY)
        factor = _BAD_FACTOR if receiver.is_bad else 1.0
        refused = _choose_refused(calls, len(exports), factor)
        if calls.choose(_HANG_PROBABILITY * factor):
            time.sleep(batch.queue.timeout_seconds + _LATE_SECONDS)
        accepted = [each for i, each in enumerate(exports) if i not in refused]

        def error(fault: Fault) -> Exception:
            return ConnectionError(f"simulated: receiver {self._name} {fault}")

        call = Call("receiver", "export", f"{self._name}/{batch.bucket}")
        calls(call, lambda: receiver.take(batch.bucket, accepted), error)
        if refused and len(refused) == len(exports):
            raise ValueError("simulated: the receiver refuses the batch")
        if refused:
            raise RefusedExportsError(dict.fromkeys(refused, "simulated: refused"))


EXPORTER = f"python:{RecordingExporter.__module__}:{RecordingExporter.__qualname__}"
"""The name of the exporter in an instance that imports modules."""


def _choose_refused(calls: Calls, count: int, factor: float) -> list[int]:
    if calls.choose(_REFUSE_ALL_PROBABILITY * factor):
        return list(range(count))
    if calls.choose(_REFUSE_SOME_PROBABILITY * factor):
        return [i for i in range(count) if i == 0 or calls.choose(0.3)]
    return []


def received_exports(batch: ExportBatch) -> list[Received]:
    """Returns the exports of a batch in its order, with values that compare: JSON as text."""
    names = [value.name for value in batch.queue.values]
    values = batch.rows.select(names).to_pylist()
    return [
        Received(
            _as_key(each.key),
            None if each.value is None else tuple(comparable(row[name]) for name in names),
            each.sequence,
        )
        for each, row in zip(batch, values, strict=True)
    ]


def _as_key(key: Any) -> Key:
    return key if isinstance(key, tuple) else (key,)
