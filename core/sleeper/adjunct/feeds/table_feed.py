"""The feed of a table's changes."""

import logging
import time
from dataclasses import replace
from functools import partial

from sleeper.adjunct.feeds.feed import Lag, begin
from sleeper.adjunct.inputs.dataset import Dataset
from sleeper.adjunct.inputs.table import TableInput, TransactionWrites
from sleeper.adjunct.recovery import StartAction
from sleeper.adjunct.store import Store, move_state
from sleeper.adjunct.store_state import StoreState
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.retries import Backoff, retry

logger = logging.getLogger(__name__)

# A version may be collected between its choice and its hold.
_RESTARTS = Backoff(retries=4)
_SAVE_SECONDS = 30.0


class TableFeed:
    """Loads the table at a version, and then applies each transaction after it. See `Feed`."""

    def __init__(self, store: Store, source: TableInput) -> None:
        self._store = store
        self._source = source
        self._must_load = False
        self._saved_at = 0.0

    def start(self) -> StartAction:
        """See the protocol. A load is done by the first `update`."""
        state = self._store.state
        problem = None if state is None else self._source.find_problem(state.positions)
        action = begin(self._store, problem)
        if action is StartAction.LOAD:
            self._must_load = True
        elif action is StartAction.FOLLOW:
            self._follow()
        return action

    def update(self) -> int:
        """See the protocol."""
        state = self._store.state
        if state is not None and not self._must_load:
            seen = self._source.inspect(state.positions)
            if seen.problem is not None:
                self._reload(seen.problem)
            elif seen.shape.digest != state.shape:
                self._reload("the table's fields or processing changed")
            elif seen.newest == self._source.number_of(state.positions):
                self._advance(seen.newest)
                return 0
        if self._must_load:
            return self._load()
        try:
            return self._apply()
        except StateMovedOnError as error:
            self._reload(str(error))
            return self._load()

    def rebuild(self) -> None:
        """See the protocol."""
        self._must_load = True

    def seal(self) -> None:
        """See the protocol."""
        raise InvalidRequestError(
            f"store {self._store.definition.name!r} follows the changes of a table, which have no "
            "end (expected a store with a bounded input)"
        )

    def lag(self) -> Lag:
        """See the protocol."""
        state = self._store.state
        if state is None:
            return Lag(None, str(self._source.newest_number()))
        seen = self._source.inspect(state.positions)
        number = self._source.number_of(state.positions)
        is_known = seen.problem is None and number is not None
        return Lag(seen.newest - (number or 0) if is_known else None, str(seen.newest))

    def close(self) -> None:
        """Does nothing: the instance is closed by its owner."""

    def _follow(self) -> None:
        """Creates a store without data at the saved position, which therefore lacks history."""
        positions = self._store.saved_positions()
        problem = self._source.find_problem(positions)
        shape = self._source.shape()
        state = replace(self._store.new_state(), is_incomplete=True, shape=shape.digest)
        if problem is not None:
            # There is no position, so the copy begins with the oldest data, as a load.
            if positions:
                logger.warning("store %s is loaded: %s", self._store.definition.name, problem)
            self._must_load = True
        else:
            state = move_state(state, self._store.clock(), positions)
        self._store.create_empty(replace(state, layout=self._source.layout()))

    def _reload(self, reason: str) -> None:
        logger.warning("store %s is loaded again: %s", self._store.definition.name, reason)
        self._must_load = True

    def _load(self) -> int:
        rows = retry(self._load_newest, on=StateMovedOnError, backoff=_RESTARTS)
        self._must_load = False
        self._save(is_due=True)
        return rows + self._apply()

    def _load_newest(self) -> int:
        number = self._source.newest_number()
        shape = self._source.shape(number)
        with self._source.open(str(number)) as dataset:

            def finish() -> StoreState:
                return self._loaded(dataset, shape.digest)

            rows = self._store.build(dataset.writes, finish, dataset.is_sorted)
        name = self._store.definition.name
        logger.info("store %s: loaded %d keys at transaction %d", name, rows, number)
        return rows

    def _loaded(self, dataset: Dataset, digest: str) -> StoreState:
        state = replace(
            self._store.new_state(),
            layout=dataset.layout(),
            shape=digest,
            is_bootstrapped=True,
        )
        return move_state(state, self._store.clock(), dataset.positions)

    def _apply(self) -> int:
        store, rows = self._store, 0
        state = store.serving.state
        with_end = self._source.newest_number()
        for transaction in self._source.changes(state.positions, state.shape):
            if transaction.writes is None:
                self._reload(f"transaction {transaction.number} replaced all rows")
                return rows + self._load()
            rows += store.apply(transaction.writes, partial(self._changed, transaction))
        self._advance(with_end)
        self._save(is_due=False)
        return rows

    def _changed(self, transaction: TransactionWrites) -> StoreState:
        state = self._store.serving.state
        positions = self._source.positions(transaction.number)
        # The first key of an extractor gives the layout.
        state = replace(state, layout=transaction.layout() or state.layout)
        return move_state(state, self._store.clock(), positions)

    def _advance(self, number: int) -> None:
        """Moves the position over transactions that changed no rows, from time to time."""
        state = self._store.serving.state
        position = self._source.number_of(state.positions) or 0
        now_ms = self._store.clock()
        is_old = now_ms - state.updated_ms > self._store.definition.max_age_seconds * 100
        if position < number or is_old:
            positions = self._source.positions(max(position, number))
            self._store.save_state(move_state(state, now_ms, positions))

    def _save(self, is_due: bool) -> None:
        now = time.monotonic()
        if is_due or now >= self._saved_at + _SAVE_SECONDS:
            self._saved_at = now
            self._store.save_positions()
