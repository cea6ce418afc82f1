"""The feed of a table's changes."""

import logging
from dataclasses import replace
from functools import partial

from sleeper.adjunct.definition import StoreState, move_state
from sleeper.adjunct.feeds.feed import LoadingFeed, StartAction, begin, load_dataset
from sleeper.adjunct.inputs.table import TableInput, TransactionWrites
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.errors import InvalidRequestError, StateMovedOnError

logger = logging.getLogger(__name__)


class TableFeed(LoadingFeed):
    """Loads the table at a version, and then applies each transaction after it."""

    def __init__(self, store: Store, source: TableInput) -> None:
        super().__init__(store)
        self._source = source

    def start(self) -> StartAction:
        state = self._store.state
        problem = None if state is None else self._source.find_problem(state.positions)
        action = begin(self._store, problem)
        if action is StartAction.LOAD:
            self._must_load = True
        elif action is StartAction.FOLLOW:
            self._begin_empty()
        return action

    def seal(self) -> None:
        raise InvalidRequestError(
            f"store {self._store.definition.name!r} follows the changes of a table, which have no "
            "end (expected a store with a bounded input)"
        )

    def lag(self) -> Lag:
        state = self._store.state
        if state is None:
            return Lag(None, str(self._source.newest_number()))
        seen = self._source.inspect(state.positions)
        # Other fields or processing change the rows of the store by a load.
        behind = seen.behind or int(seen.shape.digest != state.shape)
        return Lag(behind if seen.problem is None else None, str(seen.newest))

    def _begin_empty(self) -> None:
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

    def _load(self) -> int:
        rows = super()._load()
        self._save_positions(is_due=True)
        return rows + self._apply()

    def _load_newest(self) -> int:
        number = self._source.newest_number()
        shape = self._source.shape(number)
        with self._source.open(str(number)) as dataset:
            rows = load_dataset(self._store, dataset, shape=shape.digest)
        name = self._store.definition.name
        logger.info("store %s: loaded %d keys at transaction %d", name, rows, number)
        return rows

    def _follow(self) -> int:
        state = self._store.serving.state
        seen = self._source.inspect(state.positions)
        if seen.problem is not None:
            raise StateMovedOnError(seen.problem)
        if seen.shape.digest != state.shape:
            raise StateMovedOnError("the table's fields or processing changed")
        if seen.newest == self._source.number_of(state.positions):
            self._advance(seen.newest)
            return 0
        return self._apply()

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
        self._save_positions()
        return rows

    def _changed(self, transaction: TransactionWrites) -> StoreState:
        state = self._store.serving.state
        positions = self._source.positions(transaction.number)
        # The first key of an extractor gives the layout.
        state = replace(state, layout=transaction.layout() or state.layout)
        return move_state(state, self._store.clock(), positions)

    def _advance(self, number: int) -> None:
        """Moves the position over transactions that changed no rows, from time to time."""
        state, now_ms = self._store.serving.state, self._store.clock()
        position = self._source.number_of(state.positions) or 0
        if position < number or self._is_old(now_ms):
            positions = self._source.positions(max(position, number))
            self._store.save_state(move_state(state, now_ms, positions))
