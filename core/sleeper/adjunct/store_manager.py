"""The manager of a stream job's stores, which takes the envelopes that belong to them.

A *container* is a process of the job, and a *task* has some partitions of its inputs. A task's
stores have the data of its own partitions. The stores of broadcast inputs are the container's: one
task fills them, and all tasks read them.
"""

import importlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from sleeper.adjunct.config import MANAGER_FACTORY, StoresConfig, StoreSettings, stream_name
from sleeper.adjunct.extraction import Envelope, ExtractorSource, open_extract, own_pair
from sleeper.adjunct.feeds.feed import StartAction
from sleeper.adjunct.pushed_store import OLDEST, PushedStore
from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.instance import Instance
from sleeper.user_code.calls import contain_errors


@dataclass(frozen=True, slots=True)
class StreamPartition:
    """A partition of an input stream. `stream` is that of envelopes.

    `oldest` is the offset of the oldest envelope that it still has, "" if unknown.
    """

    stream: str
    partition: str
    oldest: str = field(default="", compare=False)


class StoreGroup:
    """The stores of a container or of a task: opens, flushes and closes them.

    `stores` are by name. A container has the stores of broadcast inputs, a task the others.
    `extractors` has the named extractors, and `open_instance` opens their instance.
    """

    def __init__(
        self,
        config: StoresConfig,
        folder: "str | os.PathLike[str] | None",
        is_container: bool,
        clock: Clock = system_clock,
        open_instance: "Callable[[], Instance] | None" = None,
    ) -> None:
        self.stores: dict[str, PushedStore] = {}
        parent = None if folder is None else Path(folder)
        source = ExtractorSource(config=config.values, allows_imports=True)
        try:
            for each in config.stores:
                if each.is_broadcast is is_container:
                    self.stores[each.definition.name] = _open(
                        each, parent, clock, source, open_instance or _no_instance
                    )
        except BaseException:
            self.close()
            raise

    def flush(self) -> None:
        """Makes what was saved durable. A job calls it before it commits its own offsets."""
        for each in self.stores.values():
            each.flush()

    def close(self) -> None:
        """Closes the stores. Idempotent."""
        for each in self.stores.values():
            each.close()


@runtime_checkable
class AdjunctDataStoreManager(Protocol):
    """Takes the envelopes that belong to stores. One thread calls it."""

    def process(self, envelope: Envelope) -> bool:
        """Is called before an envelope reaches the task. True: it was kept, and is not delivered.

        After an error the envelope and those after it must come again.
        """


@runtime_checkable
class AdjunctDataStoreManagerFactory(Protocol):
    """Makes managers."""

    def get_manager(
        self,
        task_name: str,
        config: StoresConfig,
        partitions: Collection[StreamPartition],
        container_stores: StoreGroup,
        task_stores: StoreGroup,
        should_write_to_container_stores: bool,
        positions: Mapping[StreamPartition, str],
    ) -> AdjunctDataStoreManager:
        """Returns the manager of a task with these partitions. `positions` are the job's."""


class StoreManager:
    """The manager that is used if the configuration names no other. See the protocol."""

    def __init__(
        self,
        task_name: str,
        config: StoresConfig,
        partitions: Collection[StreamPartition],
        container_stores: StoreGroup,
        task_stores: StoreGroup,
        should_write_to_container_stores: bool,
        positions: Mapping[StreamPartition, str],
    ) -> None:
        self._task_name = task_name
        self._positions = positions
        self._writes: dict[str, list[PushedStore]] = {}
        self._starts: dict[StreamPartition, str] = {}
        self._resets: set[StreamPartition] = set()
        for each in config.stores:
            name = each.definition.name
            group = container_stores if each.is_broadcast else task_stores
            own = self._find_partitions(each, partitions)
            written = self._writes.setdefault(own[0].stream, [])
            if not each.is_broadcast or should_write_to_container_stores:
                written.append(group.stores[name])
                self._start(group.stores[name], own)

    @property
    def starts(self) -> Mapping[StreamPartition, str]:
        """The offset from which the job reads each partition of the stores, "" for the oldest.

        Several stores may have one input: it is read from the oldest place that one of them needs.
        """
        return self._starts

    def resets(self) -> frozenset[StreamPartition]:
        """Returns the partitions whose offsets are reset at the start: read from the oldest."""
        return frozenset(self._resets)

    def process(self, envelope: Envelope) -> bool:
        stores = self._writes.get(envelope.stream)
        if stores is None:
            return False
        for each in stores:
            each.save(envelope)
        return True

    def _find_partitions(
        self, settings: StoreSettings, partitions: Collection[StreamPartition]
    ) -> list[StreamPartition]:
        source = settings.definition.input
        own = [each for each in partitions if each.stream in (source, stream_name(source))]
        if not own:
            streams = ", ".join(sorted({each.stream for each in partitions})) or "none"
            raise InvalidRequestError(
                f"store {settings.definition.name!r}: unknown input {source!r} of task "
                f"{self._task_name!r} (expected one of its streams: {streams})"
            )
        return own

    def _start(self, store: PushedStore, own: list[StreamPartition]) -> None:
        saved = {e.partition: self._positions[e] for e in own if e in self._positions}
        oldest = {each.partition: each.oldest for each in own if each.oldest}
        action = store.start([each.partition for each in own], saved, oldest)
        for each in own:
            position = store.positions[each.partition]
            former = self._starts.get(each, position)
            self._starts[each] = min(former, position, key=_order)
            if action is not StartAction.CONTINUE and position == OLDEST:
                self._resets.add(each)


def make_manager(
    task_name: str,
    config: StoresConfig,
    partitions: Collection[StreamPartition],
    container_stores: StoreGroup,
    task_stores: StoreGroup,
    should_write_to_container_stores: bool = True,
    positions: Mapping[StreamPartition, str] | None = None,
) -> AdjunctDataStoreManager:
    """Returns the manager of a task: the configured factory's, or else a `StoreManager`.

    `positions` are the offsets of the next envelopes, as the job has saved them. One task of a
    container writes to its stores. InvalidRequestError for an input that is none of the task's
    streams, UserCodeError if the factory fails.
    """
    make: Callable[..., AdjunctDataStoreManager] = StoreManager
    if config.manager_factory is not None:
        make = _find_factory(config.manager_factory).get_manager
    return make(
        task_name,
        config,
        partitions,
        container_stores,
        task_stores,
        should_write_to_container_stores,
        positions or {},
    )


def _find_factory(name: str) -> AdjunctDataStoreManagerFactory:
    module, _, attribute = name.partition(":")
    with contain_errors(
        lambda why: UserCodeError(f"{MANAGER_FACTORY}={name} cannot be made: {why}")
    ):
        made = getattr(importlib.import_module(module), attribute)
        factory = made() if isinstance(made, type) else made
    if not isinstance(factory, AdjunctDataStoreManagerFactory):
        raise UserCodeError(f"{MANAGER_FACTORY}={name} has no method get_manager")
    return factory


def _open(
    settings: StoreSettings,
    folder: Path | None,
    clock: Clock,
    source: ExtractorSource,
    open_instance: Callable[[], Instance],
) -> PushedStore:
    definition = settings.definition
    extract = open_extract(definition.name, definition.extractor, source, open_instance)
    return PushedStore(settings, folder, clock, extract or own_pair)


def _no_instance() -> Instance:
    raise InvalidRequestError("extractors by registered names need an instance (expected one)")


def _order(position: str) -> tuple[int, int, str]:
    """Orders positions from the oldest on."""
    if position == OLDEST:
        return (0, 0, "")
    return (1, int(position), "") if position.isdecimal() else (2, 0, position)
