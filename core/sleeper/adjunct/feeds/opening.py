"""The feed of a store, by the text that names its input."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import cast

from sleeper.adjunct.contents.writers import ExtractedRows
from sleeper.adjunct.definition import EngineType, Layout, StoreDefinition, StoreState
from sleeper.adjunct.extraction import (
    NAMED_EXTRACTORS,
    ExtractorSource,
    Process,
    open_extract,
    own_pair,
)
from sleeper.adjunct.feeds.cache_feed import CacheFeed
from sleeper.adjunct.feeds.dataset_feed import DatasetFeed, DatasetProcess
from sleeper.adjunct.feeds.feed import Feed
from sleeper.adjunct.feeds.log_dataset_feed import LogDatasetFeed
from sleeper.adjunct.feeds.log_feed import LogFeed
from sleeper.adjunct.feeds.table_feed import TableFeed
from sleeper.adjunct.inputs import KINDS, open_input
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.inputs.log import LogInput
from sleeper.adjunct.inputs.opening import InputRequest
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.temporary import temporary_folder


@dataclass(frozen=True, slots=True)
class FeedContext:
    """What feeds need besides their store.

    `instance` opens the instance on first use. `process` builds datasets in a process of its own
    while this one serves lookups; None if there are none here.
    """

    instance: Callable[[], Instance]
    extractors: ExtractorSource = NAMED_EXTRACTORS
    process: DatasetProcess | None = None


def open_feed(store: Store, context: FeedContext) -> Feed:
    """Returns the feed of the store's input. InvalidRequestError if there is no such input."""
    definition = store.definition
    spill = temporary_folder("adjunct-spill") if store.folder is None else store.folder.spill
    extract = open_extract(
        definition.name, definition.extractor, context.extractors, context.instance
    )

    def find_layout() -> Layout | None:
        return None if store.state is None else store.state.layout

    row_writer = None
    if extract is not None and not isinstance(extract, Process):
        row_writer = partial(ExtractedRows, definition, extract, find_layout)
    request = InputRequest(definition, context.instance, spill, row_writer)
    source = open_input(request)
    if isinstance(extract, Process):
        _check_processor(extract, definition, source)
    if definition.cache_bytes is not None:
        return _open_cache(store, source)
    if isinstance(source, TableInput) and not source.is_snapshot_table:
        return TableFeed(store, source)
    if KINDS[request.kind].has_datasets:
        # An extractor may be an object of this process.
        process = context.process if extract is None else None
        return DatasetFeed(store, cast(DatasetInput, source), process)
    make = LogDatasetFeed if request.stream_name().is_bounded else LogFeed
    return make(store, cast(LogInput, source), extract or own_pair)


def _open_cache(store: Store, source: DatasetInput | LogInput) -> CacheFeed:
    if not isinstance(source, TableInput) or source.is_snapshot_table:
        raise InvalidRequestError(
            f"store {store.definition.name!r}: {store.definition.input} is read as a whole "
            "(expected a table that is no snapshot table, or no cache_bytes)"
        )
    return CacheFeed(store, source)


def _check_processor(
    process: Process, definition: StoreDefinition, source: DatasetInput | LogInput
) -> None:
    """Raises InvalidRequestError for an input whose data a processor would get more than once."""
    kind = definition.input.partition(":")[0]
    if KINDS[kind].has_datasets or cast(LogInput, source).has_snapshot:
        raise InvalidRequestError(
            f"{process.where} is a processor, and {definition.input} is loaded again with other "
            "rows than its changes (expected kafka: or kinesis:, or methods get_key and get_value)"
        )
    if definition.partition is not None and not cast(LogInput, source).has_fixed_partitions:
        raise InvalidRequestError(
            f"{process.where} is a processor, and partition {definition.partition} has parts of "
            "shards (expected all keys)"
        )


@contextmanager
def opened_feed(
    definition: StoreDefinition, parent: Path | None, clock: Clock, context: FeedContext
) -> Iterator[tuple[Store, Feed]]:
    """Opens a store, which this process fills, and its feed. ConflictError as `Store`."""
    with (
        closing(Store(definition, parent, clock)) as store,
        closing(open_feed(store, context)) as feed,
    ):
        yield store, feed


def find_lag(definition: StoreDefinition, state: StoreState, context: FeedContext) -> Lag:
    """Returns how far a version with this state is behind its input, which is opened."""
    # A store without data at the same position: the feed says how far it is.
    empty = replace(definition, type=EngineType.MEMORY)
    with opened_feed(empty, None, system_clock, context) as (store, feed):
        store.build((), lambda: state)
        return feed.lag()


@contextmanager
def own_instance(open_instance: Callable[[], Instance]) -> Iterator[Callable[[], Instance]]:
    """Yields a function that opens the instance on first use. It is closed at the end."""
    with ExitStack() as opened:

        @cache
        def get() -> Instance:
            instance = open_instance()
            opened.callback(instance.close)
            return instance

        yield get
