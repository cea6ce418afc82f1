"""Operations on the stores of a folder, for processes that do not fill them."""

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sleeper.adjunct.definition import (
    EngineType,
    StoreDefinition,
    StoreState,
    parse_store,
)
from sleeper.adjunct.feeds.feed import Feed
from sleeper.adjunct.feeds.opening import FeedContext, find_lag, opened_feed
from sleeper.adjunct.feeds.updater import StoreUpdater
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.requests import Action, send_request, wait_until_done
from sleeper.adjunct.versions.status import Lag, StoreStatus, describe, reported_status
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader
from sleeper.clock import system_clock
from sleeper.errors import DataError, InvalidRequestError, UnavailableError


def find_status(parent: Path, name: str) -> StoreStatus:
    """Returns the status of a store, whether a process fills it or not.

    A damaged store has a `problem`. NotFoundError if there is no such store.
    """
    folder = _find(parent, name)
    status = reported_status(folder)
    if status.type == EngineType.MEMORY:
        return status if status.filled_by is not None else replace(status, is_serving=False)
    try:
        with closing(StoreReader(parent, name)) as reader:
            return describe(reader)
    except (DataError, UnavailableError) as error:
        return replace(status, is_serving=False, problem=str(error))


def measure_lag(parent: Path, name: str, context: FeedContext) -> Lag:
    """Returns how far a store is behind its input, which is opened. It may be filled or not.

    UnavailableError if the store has no complete version.
    """
    with closing(StoreReader(parent, name)) as reader:
        state = reader.serving.state
    return find_lag(_definition_of(name, state, EngineType.MEMORY), state, context)


def rebuild(
    parent: Path,
    name: str,
    context: FeedContext,
    source: str | None = None,
    seconds: float | None = None,
    on_rows: Callable[[int], object] = lambda _: None,
) -> bool:
    """Loads the store again, beside the version that serves. False if it takes longer.

    If a process fills the store, that process is asked, and `seconds` is the longest wait, None for
    no limit. Otherwise this process does it; `source` is the input of a store that cannot say it.
    """
    folder = _find(parent, name)
    if folder.is_locked():
        request = send_request(folder, Action.REBUILD)
        return wait_until_done(folder, request, seconds)
    definition = _find_definition(parent, name, source)
    with opened_feed(definition, parent, system_clock, context) as (store, feed):
        _load(store, feed, on_rows)
    return True


def seal(parent: Path, name: str, seconds: float | None = None) -> bool:
    """Asks the process that fills the store to end the dataset that it builds.

    False if it takes longer than `seconds`. InvalidRequestError if no process fills the store, or
    its datasets end by themselves.
    """
    folder = _find(parent, name)
    if not folder.is_locked():
        raise InvalidRequestError(
            f"store {name!r}: no process fills it, so no dataset is being built (expected `sleeper "
            "adjunct run`)"
        )
    return wait_until_done(folder, send_request(folder, Action.SEAL), seconds)


def _load(store: Store, feed: Feed, on_rows: Callable[[int], object]) -> None:
    updater = StoreUpdater(store, feed)
    report = store.on_progress

    def on_progress() -> None:
        report()
        on_rows(store.rows_building or 0)

    store.on_progress = on_progress
    feed.start()
    feed.rebuild()
    updater.update()
    if store.current is None:
        raise UnavailableError(
            f"store {store.definition.name!r}: {store.definition.input} has no complete dataset "
            "(expected the marker of its end, such as _SUCCESS in a folder)"
        )


def _find(parent: Path, name: str) -> StoreFolder:
    folder = StoreFolder(parent, name)
    if not folder.exists():
        raise folder.missing_error()
    return folder


def _find_definition(parent: Path, name: str, source: str | None) -> StoreDefinition:
    """Returns the definition that a store was filled by, of its state or its status."""
    try:
        with closing(StoreReader(parent, name)) as reader:
            if reader.state is not None and source in (None, reader.state.input):
                return _definition_of(name, reader.state, EngineType.ROCKSDB)
    except (DataError, UnavailableError):
        pass  # damaged, which is a reason to load it again
    status = reported_status(_find(parent, name))
    if source is None and not status.input:
        raise InvalidRequestError(f"store {name!r} does not say its input (expected --input)")
    definition = parse_store(name, source or status.input, status.type, partition=status.partition)
    if definition.type is EngineType.MEMORY:
        raise InvalidRequestError(f"store {name!r} is in memory, and no process fills it")
    return definition


def _definition_of(name: str, state: StoreState, kind: EngineType) -> StoreDefinition:
    definition = parse_store(
        name, state.input, kind, extractor=state.extractor, partition=state.partition
    )
    # The version that serves stays, however old it is.
    return replace(definition, max_age_seconds=math.inf, ttl_ms=state.ttl_ms)
