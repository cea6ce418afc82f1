"""Reads a log for one store, and converts its messages."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sleeper.adjunct.contents.envelopes import Stored, put_envelopes
from sleeper.adjunct.contents.writers import DocumentWriter
from sleeper.adjunct.definition import Layout, StoreDefinition, loaded_state
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.extraction import Envelope, Extract, Process, own_pair
from sleeper.adjunct.inputs.log import FINISHED, LogBatch, LogInput, is_reached
from sleeper.adjunct.versions.build import StoreBuild
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.errors import StateMovedOnError, UnavailableError

logger = logging.getLogger(__name__)

_SILENCE_SECONDS = 20.0


class LogReader:
    """Reads the messages of a log that belong to one store."""

    def __init__(
        self,
        definition: StoreDefinition,
        source: LogInput,
        extract: Extract | Process = own_pair,
    ) -> None:
        self._definition = definition
        self._extract = extract
        self.source = source

    def writer(self, layout: Layout | None) -> DocumentWriter:
        """Returns what makes writes of messages, for a version of the layout."""
        partition = None if self.source.has_fixed_partitions else self._definition.partition
        return DocumentWriter(self._definition.name, layout, partition)

    def partitions(self, positions: Mapping[str, str]) -> Sequence[str]:
        """Returns the partitions of the log to read now."""
        open_partitions, own = self.source.partitions(positions), self._definition.partition
        if own is None or not self.source.has_fixed_partitions:
            return open_partitions
        return open_partitions[own.index :: own.count]

    def catch_up(self, positions: Mapping[str, str]) -> "CatchUp":
        """Begins to read the messages that the log has now."""
        return CatchUp(self, positions)

    def find_problem(self, positions: Mapping[str, str]) -> str | None:
        """Returns why the messages after the positions cannot be read; None if they may be."""
        try:
            self.source.newest(positions)
        except StateMovedOnError as error:
            return str(error)
        except UnavailableError as error:
            logger.warning("%s was not checked: %s", self.source.name, error)
        return None

    def convert(
        self, batch: LogBatch, writer: DocumentWriter, stored: Stored
    ) -> tuple[Writes, LogBatch]:
        """Returns the writes of a batch, and the batch.

        If a message cannot be converted, these are the ones before it; its error is raised if it
        is the first. `stored` reads the version to which the writes will be added.
        """
        writes, done = put_envelopes(self._extract, batch.envelopes, writer, stored)
        return writes, batch if done == len(batch.envelopes) else take_first(batch, done)

    def convert_all(
        self, pages: Iterator[Sequence[Envelope]], writer: DocumentWriter
    ) -> Iterator[Writes]:
        """Yields the writes of envelopes, none of which may fail."""
        extract = self._extract
        assert not isinstance(extract, Process)
        for page in pages:
            yield writer.put((*extract(envelope), envelope) for envelope in page)


class CatchUp:
    """Reads up to the messages that a log had at its creation, which may become more meanwhile."""

    def __init__(self, reader: LogReader, positions: Mapping[str, str]) -> None:
        self._reader = reader
        newest, own = reader.source.newest(positions), reader.partitions(positions)
        self.newest = {each: end for each, end in newest.items() if each in own}
        self._ended: set[str] = set()
        self._moved_at = time.monotonic()

    def remaining(self, positions: Mapping[str, str]) -> list[str]:
        """Returns the partitions that have more to read."""
        return [
            each
            for each in self._reader.partitions(positions)
            if each not in self._ended
            and not is_reached(positions.get(each), self.newest.get(each))
        ]

    def poll(self, positions: Mapping[str, str], partitions: Sequence[str]) -> LogBatch:
        """Returns the next batch. UnavailableError if nothing arrived for a while."""
        source = self._reader.source
        batch = source.poll(positions, partitions)
        if batch.positions or batch.ended:
            self._moved_at = time.monotonic()
        elif time.monotonic() > self._moved_at + _SILENCE_SECONDS:
            raise UnavailableError(
                f"{source.name}: no messages for {_SILENCE_SECONDS:g} s from "
                f"partition {', '.join(partitions)}"
            )
        return batch

    def note(self, batch: LogBatch) -> None:
        """Records what was taken of a batch."""
        self._ended |= batch.ended


def take_first(batch: LogBatch, count: int) -> LogBatch:
    """Returns the batch with its first envelopes only, and with the positions after them."""
    return _keep(batch, batch.envelopes[:count], {e.partition for e in batch.envelopes[count:]})


def end_at_markers(batch: LogBatch) -> LogBatch:
    """Returns the batch without the messages after the first marker of each partition."""
    kept: list[Envelope] = []
    marked: set[str] = set()
    dropped: set[str] = set()
    for envelope in batch.envelopes:
        if envelope.partition in marked:
            dropped.add(envelope.partition)
            continue
        kept.append(envelope)
        if envelope.is_end_of_dataset:
            marked.add(envelope.partition)
    return _keep(batch, kept, dropped) if dropped else batch


def _keep(batch: LogBatch, kept: Sequence[Envelope], dropped: set[str]) -> LogBatch:
    """Returns the batch without some envelopes of the partitions `dropped`."""
    positions = {each: p for each, p in batch.positions.items() if each not in dropped}
    positions |= {each.partition: each.next_offset for each in kept if each.partition in dropped}
    return LogBatch(kept, positions, batch.ended - dropped)


class LogBuild:
    """A version of the messages from `positions` on, which it moves. It outlives an update.

    So it goes on where it was after the log did not respond. After any error of its own it is
    discarded, and has to begin again.
    """

    def __init__(self, store: Store, reader: LogReader, positions: Mapping[str, str]) -> None:
        self._store = store
        self._reader = reader
        self._writer = reader.writer(None)
        self._build: StoreBuild | None = None
        self.positions = dict(positions)
        self.rows = 0
        self.is_open = True

    def add_snapshot(self) -> None:
        """Adds the data that the log changes."""
        try:
            for writes in self._reader.convert_all(self._reader.source.snapshot(), self._writer):
                self._write(writes)
        except BaseException:
            self.discard()
            raise

    def add(self, batch: LogBatch) -> LogBatch:
        """Adds the messages up to one that cannot be converted; returns what was added."""
        writes, taken = self._reader.convert(batch, self._writer, self._get)
        self._write(writes)
        self.positions |= taken.positions
        return taken

    def finish(self, read_ms: int, dataset: str | None = None) -> int:
        """Switches to the version. Returns the number of keys that were written."""
        positions = self._reader.source.complete(self.positions, read_ms)
        layout = self._writer.layout()
        state = loaded_state(self._store.definition, read_ms, layout, positions, dataset)
        try:
            self._open().finish(state)
        finally:
            self.discard()
        self._store.save_positions()
        return self.rows

    def discard(self) -> None:
        """Deletes the version, unless it was finished. Idempotent."""
        self.is_open = False
        if self._build is not None:
            self._build.discard()

    def _get(self, key: bytes) -> bytes | None:
        return self._open().get(key)

    def _open(self) -> StoreBuild:
        if self._build is None:
            self._build = self._store.new_build()
        return self._build

    def _write(self, writes: Writes) -> None:
        try:
            self.rows += self._open().write(writes)
        except BaseException:
            self.discard()
            raise


class Alignment:
    """Reads the markers of a log from some positions on, without the messages between them.

    If `is_whole`, a dataset begins at the positions. Otherwise the messages up to the first marker
    that all partitions have may lack some.
    """

    def __init__(
        self, positions: Mapping[str, str], is_whole: bool, markers: Iterable[Envelope] = ()
    ) -> None:
        self.positions = dict(positions)
        self._first = dict(positions) if is_whole else None
        self._markers: dict[str, dict[str, str]] = {}
        for marker in markers:
            self._note(marker)

    def add(self, batch: LogBatch) -> None:
        """Takes the markers of a batch."""
        self.positions |= batch.positions
        for envelope in batch.envelopes:
            if envelope.is_end_of_dataset:
                self._note(envelope)

    def find_start(self, partitions: Iterable[str]) -> tuple[str | None, dict[str, str]] | None:
        """Returns the name of the dataset before the newest complete one, and where that ended.

        If no dataset is complete, it is the one before the next, and None if there is none. Its
        name is None at the beginning of a log. Partitions that were closed before have no marker.
        """
        markers = [self._markers.get(each, {}) for each in partitions]
        first = markers[0] if markers else ()
        common = [name for name in first if all(name in names for names in markers)]
        if len(common) < 2 and self._first is not None:
            return None, self._first
        if not common:
            return None
        name = common[-2] if len(common) > 1 else common[0]
        after = {p: names[name] for p, names in self._markers.items() if name in names}
        done = {p: at for p, at in self.positions.items() if at == FINISHED}
        return name, done | after

    def _note(self, marker: Envelope) -> None:
        # The last one of a repeated marker counts.
        names = self._markers.setdefault(marker.partition, {})
        names[str(marker.value)] = marker.next_offset


def measure_lag(reader: LogReader, positions: Mapping[str, str]) -> Lag:
    """Returns how far positions are behind a log, as far as it says where it ends."""
    newest = reader.source.newest({})
    own = set(reader.partitions(positions)) & newest.keys()
    behind = [max(int(newest[each]) - int(positions.get(each, 0)), 0) for each in own]
    shown = " ".join(f"{each}:{newest[each]}" for each in sorted(own))
    return Lag(sum(behind) if behind else None, shown or None)
