"""The status of a store: of its version, and what the process that fills it writes for others."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sleeper.adjunct.definition import StoreState
from sleeper.adjunct.versions.folder import STATUS, StoreFolder
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader
from sleeper.clock import system_clock
from sleeper.errors import DataError, SleeperError
from sleeper.json_codec import JsonCodec

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a store is behind its input: `behind` transactions, messages or datasets.

    `newest` is the newest position, or the name of the newest dataset. Both are None if unknown.
    """

    behind: int | None
    newest: str | None


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


_CODEC = JsonCodec(StoreStatus)


def describe(
    source: Store | StoreReader,
    problem: str | None = None,
    find_lag: Callable[[], Lag] | None = None,
) -> StoreStatus:
    """Returns the status of a store that this process fills, or reads.

    `problem` is why the last update failed. `find_lag` asks the input of a store that is filled.
    """
    if isinstance(source, Store):
        status = _describe_filled(source, problem, find_lag)
    else:
        status = reported_status(source.folder)
        status = replace(status, problem=problem or status.problem)
    version = source.current
    state = StoreState(status.input, status.partition, None) if version is None else version.state
    # The state has the time of the last change, or one that is up to a tenth of the age too early.
    updated_ms = max(state.updated_ms, status.updated_ms)
    if isinstance(source, Store) and version and status.lag == 0 and status.problem is None:
        updated_ms = source.clock()
    return replace(
        status,
        input=state.input,
        partition=state.partition,
        is_serving=version is not None,
        # What was reported of the version may be of an earlier one.
        version=state.dataset,
        offset=dict(state.positions),
        bootstrapped=state.is_bootstrapped,
        incomplete=state.is_incomplete,
        bytes=0 if version is None else version.engine.size(),
        updated_ms=updated_ms,
    )


def reported_status(folder: StoreFolder) -> StoreStatus:
    """Returns the status that the process that fills the store, or the last one, has written."""
    holder = folder.holder()
    report = read_report(folder) or StoreStatus(folder.name, "", "rocksdb", None, False, False)
    report = replace(report, is_filling=False, filled_by=holder)
    return report if holder is not None else replace(report, lag=None, newest=None, building=None)


def read_report(folder: StoreFolder) -> StoreStatus | None:
    """Returns the status that was written last, None if there is none or it is damaged."""
    try:
        content = (folder.path / STATUS).read_text()
        return _CODEC.parse(content, f"store at {folder.path}", DataError)
    except (OSError, ValueError, DataError):
        return None


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


def _describe_filled(
    store: Store, problem: str | None, find_lag: Callable[[], Lag] | None
) -> StoreStatus:
    definition, lag = store.definition, Lag(None, None)
    try:
        lag = lag if find_lag is None else find_lag()
    except SleeperError as error:
        problem = problem or str(error)
    return StoreStatus(
        definition.name,
        definition.input,
        definition.type.value,
        definition.partition_text,
        is_serving=False,
        is_filling=True,
        lag=lag.behind,
        newest=lag.newest,
        problem=problem,
        building=store.rows_building,
        filled_by=f"process {os.getpid()}",
        reported_ms=store.clock(),
    )
