"""The feed of an input whose datasets replace each other: snapshot tables, stashes, files."""

import logging
import time

from sleeper.adjunct.dataset_process import DatasetProcess, loaded_state
from sleeper.adjunct.feeds.feed import Lag, begin
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.recovery import StartAction
from sleeper.adjunct.store import Store
from sleeper.adjunct.store_state import StoreState
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.retries import Backoff, retry

logger = logging.getLogger(__name__)

_RESTARTS = Backoff(retries=4)


class DatasetFeed:
    """Builds a version of each newest dataset beside the one that serves. See `Feed`."""

    def __init__(
        self, store: Store, source: DatasetInput, process: DatasetProcess | None = None
    ) -> None:
        self._store = store
        self._source = source
        self._process = process
        self._must_load = False

    def start(self) -> StartAction:
        """See the protocol. There are no changes to go on with, so `update` loads a dataset."""
        action = begin(self._store, None)
        self._store.fix()
        return action

    def update(self) -> int:
        """See the protocol."""
        newest = self._source.newest()
        state = self._store.state
        if newest is None:
            return 0
        if state is not None and not self._must_load and self._has(state, newest):
            self._touch(state)
            return 0
        rows = retry(self._load_newest, on=StateMovedOnError, backoff=_RESTARTS)
        self._must_load = False
        return rows

    def rebuild(self) -> None:
        """See the protocol."""
        self._must_load = True

    def seal(self) -> None:
        """See the protocol."""
        raise InvalidRequestError(
            f"store {self._store.definition.name!r}: datasets of {self._store.definition.input} "
            "are complete when they appear (expected a store that is filled from a stream)"
        )

    def lag(self) -> Lag:
        """See the protocol."""
        newest, state = self._source.newest(), self._store.state
        if newest is None:
            return Lag(0, None)
        return Lag(int(state is None or state.dataset != newest), newest)

    def close(self) -> None:
        """Does nothing: the instance is closed by its owner."""

    def _has(self, state: StoreState, dataset: str) -> bool:
        return state.dataset == dataset and self._source.is_current(state.positions)

    def _load_newest(self) -> int:
        name = self._source.newest()
        if name is None:
            return 0
        start = time.monotonic()
        rows = None
        if self._process is not None and self._store.current is not None:
            rows = self._process.build(self._store, name)
        if rows is None:
            rows = self._build(name)
        logger.info(
            "store %s: switched to dataset %s with %d keys after %.1f s",
            *(self._store.definition.name, name, rows, time.monotonic() - start),
        )
        self._store.save_positions()
        return rows

    def _build(self, name: str) -> int:
        store = self._store
        with self._source.open(name) as dataset:
            rows = store.build(
                dataset.writes,
                lambda: loaded_state(store.definition, dataset, store.clock()),
                dataset.is_sorted,
            )
        store.fix()
        return rows

    def _touch(self, state: StoreState) -> None:
        """Records from time to time that the input has nothing newer."""
        now_ms = self._store.clock()
        if now_ms - state.updated_ms > self._store.definition.max_age_seconds * 100:
            self._store.touch(now_ms)
