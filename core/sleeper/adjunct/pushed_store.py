"""A store that is filled by the envelopes which a stream job gives to it."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from sleeper.adjunct.config import StoreSettings
from sleeper.adjunct.contents.envelopes import Stored, put_envelopes
from sleeper.adjunct.contents.writers import DocumentWriter
from sleeper.adjunct.definition import move_state
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.extraction import Envelope, Extract, Process
from sleeper.adjunct.feeds.feed import StartAction, begin
from sleeper.adjunct.versions.build import StoreBuild
from sleeper.adjunct.versions.status import StoreStatus, describe
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import Lookups, StoreVersion
from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, UnavailableError

logger = logging.getLogger(__name__)

OLDEST = ""
"""The position of a partition that is read from its oldest envelope."""

_WAITING_MAX = 100_000
NOTHING: Mapping[str, str] = {}


class PushedStore(Lookups):
    """A store of a container or a task. One thread at a time saves; any threads read.

    The changes of an unbounded input are applied one by one, each with its position. The envelopes
    of a bounded input are collected in a version, which takes its place when each partition has
    delivered its marker.
    """

    def __init__(
        self,
        settings: StoreSettings,
        parent: Path | None,
        clock: Clock,
        extract: Extract | Process,
    ) -> None:
        if settings.definition.partition is not None:
            raise InvalidRequestError(
                f"store {settings.definition.name!r}: partition {settings.definition.partition} "
                "(expected none: a task has the partitions of its input)"
            )
        self.definition = settings.definition
        self._is_bounded = settings.is_bounded
        self._extract = extract
        self._store = Store(settings.definition, parent, clock)
        self._partitions: Collection[str] = ()
        self._writer = DocumentWriter(self.definition.name)
        self._dataset: _BoundedDataset | None = None
        self._waiting: list[Envelope] = []
        self._begun: Mapping[str, str] = {}

    def start(
        self,
        partitions: Collection[str],
        positions: Mapping[str, str],
        oldest: Mapping[str, str] = NOTHING,
    ) -> StartAction:
        """Decides what becomes of the store that was found.

        `positions` are those of the job, and `oldest` the offsets of the oldest envelopes that the
        partitions still have, where they are known.
        """
        self._partitions = partitions
        state = self._store.state
        problem = None if state is None else self._find_problem(state.positions, oldest)
        action = begin(self._store, problem)
        if action is not StartAction.CONTINUE:
            is_from_oldest = action is StartAction.LOAD or self.definition.reset_offset
            saved = {} if is_from_oldest else {**self._store.saved_positions(), **positions}
            begun = {each: saved.get(each, OLDEST) for each in partitions}
            new = replace(
                self._store.new_state(),
                is_bootstrapped=not any(begun.values()),
                is_incomplete=any(begun.values()),
            )
            if not self._is_bounded:
                self._store.create_empty(move_state(new, self._store.clock(), begun))
            self._begun = begun
        self._take_layout()
        return action

    @property
    def positions(self) -> Mapping[str, str]:
        """The offset of the next envelope that the store needs, by partition."""
        state = self._store.state
        return self._begun if state is None else state.positions

    def save(self, envelope: Envelope) -> None:
        """Saves an envelope with its position, unless it was saved before.

        UserCodeError or DataError, naming the envelope, if its key or value cannot be made; then
        nothing was saved.
        """
        if self._is_bounded:
            self._collect(envelope)
        elif envelope.is_end_of_dataset:
            raise InvalidRequestError(
                f"store {self.definition.name!r}: {envelope} ends a dataset, and the store follows "
                f"changes (expected stores.{self.definition.name}.adstore.bounded=true)"
            )
        elif not _is_saved(envelope, self.positions):
            writes = self._convert(envelope, self._store.serving.engine.get)
            state = self._store.serving.state
            positions = {**state.positions, envelope.partition: envelope.next_offset}
            state = replace(state, layout=self._writer.layout())
            state = move_state(state, self._store.clock(), positions)
            self._store.apply((writes,), lambda: state)

    def flush(self) -> None:
        """Makes what was saved durable, and its positions survive the loss of the version.

        An input that had no envelopes for a while is up to date all the same.
        """
        state, now_ms = self._store.state, self._store.clock()
        if state is not None and not self._is_bounded:
            self._store.save_state(move_state(state, now_ms, state.positions))
        self._store.sweep()
        self._store.save_positions()

    def close(self) -> None:
        """Closes the store. A dataset that is not complete is collected again. Idempotent."""
        if self._dataset is not None:
            self._dataset.build.discard()
            self._dataset = None
        self._store.close()

    @property
    def _version(self) -> StoreVersion:
        return self._store.serving

    def status(self) -> StoreStatus:
        """Returns the status, without how far the store is behind."""
        return describe(self._store)

    def _find_problem(self, positions: Mapping[str, str], oldest: Mapping[str, str]) -> str | None:
        """Returns why the store does not belong to the task's partitions, or cannot go on."""
        lacking = sorted(set(self._partitions) - set(positions))
        foreign = sorted(set(positions) - set(self._partitions))
        if lacking:
            return f"it has no offset for partition {', '.join(lacking)}"
        if foreign:
            return f"it has data of partition {', '.join(foreign)}, which is not the task's"
        for each in sorted(oldest):
            position = positions[each]
            if _is_before(position, oldest[each]):
                return (
                    f"partition {each} of {self.definition.input} begins at offset {oldest[each]}, "
                    f"and the store is at {position}"
                )
        return None

    def _collect(self, envelope: Envelope) -> None:
        if self._dataset is None:
            self._dataset = _BoundedDataset(self._store.new_build(), dict(self.positions))
        dataset = self._dataset
        if envelope.partition in dataset.ended:
            # It belongs to the next dataset, and another partition still delivers this one.
            if len(self._waiting) >= _WAITING_MAX:
                missing = sorted(set(self._partitions) - dataset.ended)
                raise UnavailableError(
                    f"store {self.definition.name!r}: {envelope} belongs to the next dataset "
                    f"(expected the marker of partition {', '.join(missing)} first)"
                )
            self._waiting.append(envelope)
        elif not _is_saved(envelope, dataset.positions):
            self._add(dataset, envelope)

    def _add(self, dataset: "_BoundedDataset", envelope: Envelope) -> None:
        if envelope.is_end_of_dataset:
            dataset.ended.add(envelope.partition)
            dataset.name = str(envelope.value)
        else:
            dataset.build.write(self._convert(envelope, dataset.build.get))
        dataset.positions[envelope.partition] = envelope.next_offset
        if dataset.ended >= set(self._partitions):
            self._switch(dataset)

    def _convert(self, envelope: Envelope, stored: Stored) -> Writes:
        if isinstance(self._extract, Process) and not envelope.offset.isdecimal():
            # It would not be known whether the envelope was processed before.
            raise InvalidRequestError(
                f"{self._extract.where}: {envelope} is no number (expected one, for a processor)"
            )
        return put_envelopes(self._extract, (envelope,), self._writer, stored)[0]

    def _switch(self, dataset: "_BoundedDataset") -> None:
        former = self._store.state
        state = replace(
            self._store.new_state(),
            layout=self._writer.layout(),
            dataset=dataset.name,
            is_bootstrapped=True,
            # A dataset after the first one was delivered as a whole.
            is_incomplete=former is None and any(self._begun.values()),
        )
        dataset.build.finish(move_state(state, self._store.clock(), dataset.positions))
        logger.info("store %s: switched to dataset %s", self.definition.name, dataset.name)
        self._dataset = None
        self._store.save_positions()
        self._writer = DocumentWriter(self.definition.name)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._collect(each)

    def _take_layout(self) -> None:
        state = self._store.state
        if state is not None and not self._is_bounded:
            self._writer = DocumentWriter(self.definition.name, state.layout)


class _BoundedDataset:
    """A dataset on its way: the partitions that have delivered their marker are `ended`."""

    def __init__(self, build: StoreBuild, positions: dict[str, str]) -> None:
        self.build = build
        self.positions = positions
        self.ended: set[str] = set()
        self.name = ""


def _is_saved(envelope: Envelope, positions: Mapping[str, str]) -> bool:
    """Returns whether a store with the positions has the envelope, as far as offsets tell.

    Saving an envelope again does no harm if those after it come again too.
    """
    return _is_before(envelope.offset, positions.get(envelope.partition, OLDEST))


def _is_before(offset: str, other: str) -> bool:
    """Returns whether an offset is smaller, False if they are no numbers."""
    return offset.isdecimal() and other.isdecimal() and int(offset) < int(other)
