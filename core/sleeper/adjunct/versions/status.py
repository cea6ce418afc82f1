"""The status of a store."""

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sleeper.adjunct.definition import StoreState
from sleeper.adjunct.engines.engine import Engine
from sleeper.adjunct.feeds.feed import Feed, Lag
from sleeper.adjunct.versions.folder import STATUS, StoreFolder
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader
from sleeper.clock import system_clock
from sleeper.errors import DataError, SleeperError
from sleeper.json_codec import JsonCodec


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The status of a store.

    - `version`: the dataset of a bounded input; None for an input of changes.
    - `offset`: the position in each partition of the input.
    - `lag`: the number of transactions, messages or datasets that the store lacks; None if unknown.
      `newest` is the newest position of the input, or the name of its newest dataset.
    - `bootstrapped`: a complete copy was made. `incomplete`: data from before the store's first
      position is missing.
    - `bytes`: the size on disk, or of keys and values in memory.
    - `is_serving`: lookups are answered. `is_filling`: the process of this object fills the store.
    - `updated_ms`: the time at which the store last had all data of its input.
    - `problem`: why the last update failed; None if it did not.
    - `building`: the number of keys of the version that is being built; None if none is.
    - `filled_by`: the process that fills the store; None if none does. That process reported `lag`,
      `newest`, `building` and `problem` at `reported_ms`.
    """

    name: str
    input: str
    type: str
    partition: str | None
    is_serving: bool
    is_filling: bool
    version: str | None = None
    offset: Mapping[str, str] = field(default_factory=dict)
    lag: int | None = None
    newest: str | None = None
    bootstrapped: bool = False
    incomplete: bool = False
    bytes: int = 0
    updated_ms: int = 0
    problem: str | None = None
    building: int | None = None
    filled_by: str | None = None
    reported_ms: int | None = None


logger = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""The process that fills a store writes its status at least so often, also during a load."""

_CHANGE_SECONDS = 1.0
_CODEC = JsonCodec(StoreStatus)


def describe_store(store: Store, feed: Feed | None, problem: str | None) -> StoreStatus:
    """Returns the status of a store that this process fills."""
    definition = store.definition
    lag: Lag | None = None
    try:
        lag = None if feed is None else feed.lag()
    except SleeperError as error:
        problem = problem or str(error)
    version = store.current
    status = StoreStatus(
        definition.name,
        definition.input,
        definition.type.value,
        definition.partition_text,
        is_serving=version is not None,
        is_filling=True,
        lag=None if lag is None else lag.behind,
        newest=None if lag is None else lag.newest,
        problem=problem,
        building=store.rows_building,
        filled_by=f"process {os.getpid()}",
        reported_ms=store.clock(),
    )
    status = _with_version(status, store.state, None if version is None else version.engine)
    if status.lag == 0 and problem is None and status.is_serving:
        status = replace(status, updated_ms=store.clock())
    return status


def describe_reader(reader: StoreReader) -> StoreStatus:
    """Returns the status of a store on disk that another process fills, or none."""
    version, state = reader.current, reader.state
    status = describe_folder(reader.folder)
    reported_ms = status.updated_ms
    if state is not None:
        status = replace(status, input=state.input, partition=state.partition)
    # What was reported of the version may be of an earlier one.
    status = replace(
        status,
        is_serving=version is not None,
        version=None,
        offset={},
        bootstrapped=False,
        incomplete=False,
        bytes=0,
        updated_ms=0,
    )
    status = _with_version(status, state, None if version is None else version.engine)
    # The state has the time of the last change, or one that is up to a tenth of the age too early.
    return replace(status, updated_ms=max(status.updated_ms, reported_ms))


def describe_folder(folder: StoreFolder) -> StoreStatus:
    """Returns the status that the process that fills the store, or the last one, has reported."""
    holder = folder.holder()
    report = read_report(folder) or StoreStatus(folder.name, "", "rocksdb", None, False, False)
    report = replace(report, is_filling=False, filled_by=holder)
    if holder is None:
        report = replace(report, lag=None, newest=None, building=None)
    return report


def read_report(folder: StoreFolder) -> StoreStatus | None:
    """Returns the status that was written last, None if there is none or it is damaged."""
    try:
        content = (folder.path / STATUS).read_text()
        return _CODEC.parse(content, f"store at {folder.path}", DataError)
    except (OSError, ValueError, DataError):
        return None


class StatusReporter:
    """Writes the status of a store from time to time, for other processes. One thread calls it."""

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._written_at = -REPORT_SECONDS
        self._problem: str | None = None
        self._is_changed = False
        self._updated_ms = 0

    def report(self, problem: str | None, is_changed: bool = False) -> None:
        """Writes the status if it is due. A change of it is due earlier."""
        now = time.monotonic()
        self._is_changed = self._is_changed or is_changed or problem != self._problem
        period = _CHANGE_SECONDS if self._is_changed else REPORT_SECONDS
        if self._store.folder is None or now < self._written_at + period:
            return
        self._written_at, self._problem, self._is_changed = now, problem, False
        # During a load, the input has more to do than to say how far it is.
        feed = None if self._store.rows_building is not None else self._feed
        self._write(self._store.folder, feed, problem)

    def close(self, problem: str | None) -> None:
        """Writes the status at the end, without how far the store is behind."""
        if self._store.folder is not None:
            self._write(self._store.folder, None, problem)

    def _write(self, folder: StoreFolder, feed: Feed | None, problem: str | None) -> None:
        status = describe_store(self._store, feed, problem)
        self._updated_ms = max(self._updated_ms, status.updated_ms)
        write_report(folder, replace(status, updated_ms=self._updated_ms))


def write_report(folder: StoreFolder, status: StoreStatus) -> None:
    """Replaces the status. A full disk does not matter, because the status is written again."""
    new = folder.path / f"{STATUS}.new"
    try:
        new.write_text(_CODEC.format(status))
        new.replace(folder.path / STATUS)
    except OSError as error:
        logger.debug("store %s: cannot write %s: %s", folder.name, STATUS, error)


def seconds_since(milliseconds: int) -> float:
    """Returns the time that has passed since a moment, 0 if it is later."""
    return max(0.0, (system_clock() - milliseconds) / 1000)


def _with_version(
    status: StoreStatus, state: StoreState | None, engine: Engine | None
) -> StoreStatus:
    if state is None or engine is None:
        return status
    return replace(
        status,
        version=state.dataset,
        offset=dict(state.positions),
        bootstrapped=state.is_bootstrapped,
        incomplete=state.is_incomplete,
        bytes=engine.size(),
        updated_ms=state.updated_ms,
    )
