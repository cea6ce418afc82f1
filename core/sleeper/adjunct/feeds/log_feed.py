"""The feed of a log whose messages are changes without an end."""

import logging
import time
from dataclasses import replace

from sleeper.adjunct.definition import StoreState, move_state
from sleeper.adjunct.extraction import Extract, Process, own_pair
from sleeper.adjunct.feeds.feed import LoadingFeed, StartAction, begin
from sleeper.adjunct.feeds.log_reader import LogBuild, LogReader, measure_lag
from sleeper.adjunct.inputs.log import LogInput
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.errors import InvalidRequestError, StateMovedOnError

logger = logging.getLogger(__name__)

_FROM_OLDEST = "from the oldest message"
"""The shape of a store that began empty with the oldest message, and has not all messages yet."""


class LogFeed(LoadingFeed):
    """Loads all messages of a log, and then applies each batch after them."""

    def __init__(
        self, store: Store, source: LogInput, extract: Extract | Process = own_pair
    ) -> None:
        super().__init__(store)
        self._source = source
        self._reader = LogReader(store.definition, source, extract)
        self._build: LogBuild | None = None

    def start(self) -> StartAction:
        state = self._store.state
        problem = None if state is None else self._reader.find_problem(state.positions)
        action = begin(self._store, problem)
        if action is StartAction.LOAD:
            self._must_load = True
        elif action is StartAction.FOLLOW:
            self._begin_empty()
        return action

    def rebuild(self) -> None:
        self._discard_build()
        self._must_load = True

    def seal(self) -> None:
        raise InvalidRequestError(
            f"store {self._store.definition.name!r} follows {self._source.name}, which has no end "
            "(expected an input with the option dataset=bounded)"
        )

    def lag(self) -> Lag:
        state = self._store.state
        return measure_lag(self._reader, {} if state is None else state.positions)

    def close(self) -> None:
        self._discard_build()
        self._source.close()

    def _begin_empty(self) -> None:
        """Creates a store without data at the saved position, or at the oldest message."""
        name, saved = self._store.definition.name, self._store.saved_positions()
        problem = self._reader.find_problem(saved) if saved else None
        if problem is not None:
            logger.warning("store %s begins with the oldest message: %s", name, problem)
            saved = {}
        # The stream of a table has only its latest changes.
        self._must_load = not saved and self._source.has_snapshot
        shape = None if saved or self._must_load else _FROM_OLDEST
        state = replace(self._store.new_state(), is_incomplete=True, shape=shape)
        self._store.create_empty(move_state(state, self._store.clock(), saved))

    def _load_newest(self) -> int:
        start, read_ms = time.monotonic(), self._store.clock()
        build = self._build
        if build is None or not build.is_open:
            build = self._build = self._begin_build()
        try:
            catch_up = self._reader.catch_up(build.positions)
            while catch_up.remaining(build.positions):
                partitions = self._reader.partitions(build.positions)
                catch_up.note(build.add(catch_up.poll(build.positions, partitions)))
        except StateMovedOnError:
            self._discard_build()
            raise
        rows = build.finish(read_ms)
        self._build = None
        logger.info(
            "store %s: loaded %d messages of %s in %.1f s",
            *(self._store.definition.name, rows, self._source.name, time.monotonic() - start),
        )
        return rows

    def _begin_build(self) -> LogBuild:
        build = LogBuild(self._store, self._reader, {})
        if self._source.has_snapshot:
            build.add_snapshot()
        elif not self._source.is_whole():
            name = self._store.definition.name
            logger.warning("store %s: %s has no early messages", name, self._source.name)
        return build

    def _follow(self) -> int:
        read_ms, rows = self._store.clock(), 0
        state = self._store.serving.state
        positions, writer = dict(state.positions), self._reader.writer(state.layout)
        catch_up = self._reader.catch_up(positions)
        while catch_up.remaining(positions):
            batch = catch_up.poll(positions, self._reader.partitions(positions))
            stored = self._store.serving.engine.get
            writes, taken = self._reader.convert(batch, writer, stored)
            if taken.positions:
                positions |= taken.positions
                changed = replace(state, positions=dict(positions), layout=writer.layout())
                rows += self._store.apply((writes,), lambda changed=changed: changed)  # type: ignore[misc]
            catch_up.note(taken)
        self._caught_up(state, read_ms)
        return rows

    def _caught_up(self, before: StoreState, read_ms: int) -> None:
        """Records that the store has all messages of a time, unless nothing changed recently."""
        state = self._store.serving.state
        is_complete = state.shape == _FROM_OLDEST
        if state is not before or self._is_old(read_ms) or is_complete:
            if is_complete:
                state = replace(state, shape=None, is_incomplete=False, is_bootstrapped=True)
            positions = self._source.complete(state.positions, read_ms)
            self._store.save_state(move_state(state, read_ms, positions))
        self._save_positions()

    def _discard_build(self) -> None:
        build, self._build = self._build, None
        if build is not None:
            build.discard()
