"""The feed of a store, by the text that names its input."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sleeper.adjunct.contents.extracted_rows import ExtractedRows
from sleeper.adjunct.dataset_process import DatasetProcess
from sleeper.adjunct.extraction import (
    NAMED_EXTRACTORS,
    Extract,
    ExtractorSource,
    open_extract,
    own_pair,
)
from sleeper.adjunct.feeds.dataset_feed import DatasetFeed
from sleeper.adjunct.feeds.feed import Feed
from sleeper.adjunct.feeds.log_dataset_feed import LogDatasetFeed
from sleeper.adjunct.feeds.log_feed import LogFeed
from sleeper.adjunct.feeds.table_feed import TableFeed
from sleeper.adjunct.inputs.log import LogInput
from sleeper.adjunct.inputs.opening import open_dataset_input
from sleeper.adjunct.inputs.stream_options import StreamName, parse_stream_name
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.store import Store
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.runs.secrets import read_secret_of
from sleeper.temporary import temporary_folder

_EXPECTED = (
    "table:NAME, stash:DESTINATION#TABLE, files:PATH, kafka://HOST:PORT/TOPIC, kinesis:STREAM or "
    "dynamodb:TABLE"
)


def _refuse_stream(_kind: str, name: StreamName) -> LogInput:
    raise InvalidRequestError(f"{name.where} cannot be opened here (expected another input)")


@dataclass(frozen=True, slots=True)
class FeedContext:
    """What feeds need besides their store.

    `instance` opens the instance on first use. `open_stream` opens a stream of AWS, of the kind
    `kinesis` or `dynamodb`. `process` builds datasets in a process of its own while this one serves
    lookups; None if there are none here.
    """

    instance: Callable[[], Instance]
    extractors: ExtractorSource = NAMED_EXTRACTORS
    open_stream: Callable[[str, StreamName], LogInput] = _refuse_stream
    process: DatasetProcess | None = None


def open_feed(store: Store, context: FeedContext) -> Feed:
    """Returns the feed of the store's input. InvalidRequestError if there is no such input."""
    spill = temporary_folder("adjunct-spill") if store.folder is None else store.folder.spill
    extract = _find_extract(store, context)
    make_writer = None if extract is None else partial(ExtractedRows, store, extract)
    source = open_dataset_input(store.definition, context.instance, spill, make_writer)
    if isinstance(source, TableInput) and not source.is_snapshot_table:
        return TableFeed(store, source)
    if source is not None:
        # An extractor may be an object of this process.
        return DatasetFeed(store, source, context.process if extract is None else None)
    kind, separator, rest = store.definition.input.partition(":")
    opener = _FEEDS.get(kind) if separator and rest else None
    if opener is None:
        raise InvalidRequestError(
            f"store {store.definition.name!r}: unknown input {store.definition.input!r} (expected "
            f"{_EXPECTED})"
        )
    return opener(store, context, rest)


def _find_extract(store: Store, context: FeedContext) -> Extract | None:
    definition = store.definition
    return open_extract(definition.name, definition.extractor, context.extractors, context.instance)


def _open_kafka(store: Store, context: FeedContext, rest: str) -> Feed:
    from sleeper.adjunct.inputs.kafka import PASSWORD, KafkaInput, check_kafka

    name = parse_stream_name(store.definition.name, "kafka", rest)
    check_kafka(name)
    reference = name.options.get(PASSWORD)
    password = None if reference is None else read_secret_of(context.instance, reference)
    return _make_log_feed(store, context, KafkaInput(name, password), name)


def _open_aws(kind: str, store: Store, context: FeedContext, rest: str) -> Feed:
    name = parse_stream_name(store.definition.name, kind, rest)
    return _make_log_feed(store, context, context.open_stream(kind, name), name)


def _make_log_feed(store: Store, context: FeedContext, source: LogInput, name: StreamName) -> Feed:
    extract = _find_extract(store, context) or own_pair
    return (LogDatasetFeed if name.is_bounded else LogFeed)(store, source, extract)


_FEEDS: dict[str, Callable[[Store, FeedContext, str], Feed]] = {
    "kafka": _open_kafka,
    "kinesis": partial(_open_aws, "kinesis"),
    "dynamodb": partial(_open_aws, "dynamodb"),
}
