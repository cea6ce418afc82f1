"""Versions of a store that have exactly the dataset that is asked for.

All tasks of a distributed job read one dataset, which its planner names, on whatever machine and
at whatever time they run. So these stores do not follow their input. The first process of a machine
that needs a dataset locks the folder and builds a version of it: of the changes since the version
before, if the input is a table that still has them, or of all its data. Others wait for it. A
version never changes, and is deleted when no process reads it and a newer one exists.
"""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sleeper.adjunct.definition import StoreDefinition, StoreState, move_state
from sleeper.adjunct.feeds.feed import load_dataset
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreVersion, open_version
from sleeper.clock import Clock
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    StateMovedOnError,
    UnavailableError,
)

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_WAIT_SECONDS = 1_800.0

OpenInput = Callable[[], DatasetInput]


def open_dataset(
    definition: StoreDefinition,
    parent: Path,
    open_input: OpenInput,
    dataset: str,
    clock: Clock,
    wait_seconds: float = _WAIT_SECONDS,
) -> StoreVersion:
    """Returns a version with a dataset of the input, which never changes.

    UnavailableError if another process builds for longer than `wait_seconds`, or the input or the
    disk does not respond. StateMovedOnError if the input does not have the dataset any more.
    """
    folder = StoreFolder(parent, definition.name)
    deadline = time.monotonic() + wait_seconds
    while True:
        version = _find(folder, dataset)
        if version is not None:
            return version
        try:
            store = Store(definition, parent, clock)
        except ConflictError as error:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"waited {wait_seconds:g} s for dataset {dataset!r}: {error}"
                ) from error
            time.sleep(_POLL_SECONDS)
            continue
        with closing(store):
            if folder.find_dataset(dataset) is None:
                _build(store, open_input(), dataset)
            version = _find(folder, dataset)
        if version is not None:
            return version


def _find(folder: StoreFolder, dataset: str) -> StoreVersion | None:
    if not folder.path.is_dir():
        return None
    name = folder.find_dataset(dataset)
    try:
        version = None if name is None else open_version(folder, name)
    except DataError:
        # Deleted while it was opened, or damaged: it is built again.
        return None
    return version if version is not None and version.state.dataset == dataset else None


def _build(store: Store, source: DatasetInput, dataset: str) -> None:
    start = time.monotonic()
    rows = None
    if isinstance(source, TableInput) and not source.is_snapshot_table:
        rows = _build_of_changes(store, source, int(dataset))
    how = "changes"
    if rows is None:
        how, rows = "keys", _load(store, source, dataset)
    logger.info(
        "store %s: built a version of dataset %s with %d %s after %.1f s",
        *(store.definition.name, dataset, rows, how, time.monotonic() - start),
    )


def _load(store: Store, source: DatasetInput, dataset: str) -> int:
    with source.open(dataset) as opened:
        shape = source.shape(int(dataset)).digest if isinstance(source, TableInput) else None
        return load_dataset(store, opened, dataset, shape)


def _build_of_changes(store: Store, source: TableInput, number: int) -> int | None:
    """Builds the version of a number from an earlier one. None if that is impossible."""
    version = store.current
    if version is None:
        return None
    state = version.state
    rows = 0
    try:
        if not _can_continue(state, source, number):
            return None
        with store.new_build(version) as build:
            for transaction in source.changes(state.positions, state.shape, number):
                if transaction.writes is None:
                    return None
                rows += sum(map(build.write, transaction.writes))
            positions = source.positions(number)
            build.finish(replace(move_state(state, store.clock(), positions), dataset=str(number)))
    except (InvalidRequestError, StateMovedOnError) as error:
        logger.info("store %s is loaded: %s", store.definition.name, error)
        return None
    return rows


def _can_continue(state: StoreState, source: TableInput, number: int) -> bool:
    before = source.number_of(state.positions)
    return (
        before is not None
        and before < number
        and source.find_problem(state.positions) is None
        and state.shape == source.shape(number).digest
    )
