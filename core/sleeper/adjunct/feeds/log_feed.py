"""The feed of a log whose messages are changes without an end."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from sleeper.adjunct.extraction import Extract, own_pair
from sleeper.adjunct.feeds.feed import Lag, begin
from sleeper.adjunct.feeds.log_build import LogBuild
from sleeper.adjunct.feeds.log_reader import LogReader
from sleeper.adjunct.inputs.log import LogInput
from sleeper.adjunct.recovery import StartAction
from sleeper.adjunct.store import Store, move_state
from sleeper.adjunct.store_state import StoreState
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.retries import Backoff, retry

logger = logging.getLogger(__name__)

# Messages may be trimmed while they are read.
_RESTARTS = Backoff(retries=4)
_SAVE_SECONDS = 30.0
_FROM_OLDEST = "from the oldest message"
"""The shape of a store that began empty with the oldest message, and has not all messages yet."""


class LogFeed:
    """Loads all messages of a log, and then applies each batch after them. See `Feed`."""

    def __init__(self, store: Store, source: LogInput, extract: Extract = own_pair) -> None:
        self._store = store
        self._source = source
        self._reader = LogReader(store.definition, source, extract)
        self._build: LogBuild | None = None
        self._must_load = False
        self._saved_at = 0.0

    def start(self) -> StartAction:
        """See the protocol. A load is done by `update`."""
        state = self._store.state
        problem = None if state is None else self._reader.find_problem(state.positions)
        action = begin(self._store, problem)
        if action is StartAction.LOAD:
            self._must_load = True
        elif action is StartAction.FOLLOW:
            self._begin_empty()
        return action

    def update(self) -> int:
        """See the protocol. Reads up to the messages that the log has at the call."""
        if self._must_load:
            return self._load()
        try:
            return self._follow()
        except StateMovedOnError as error:
            self._reload(str(error))
            return self._load()

    def rebuild(self) -> None:
        """See the protocol."""
        self._discard_build()
        self._must_load = True

    def seal(self) -> None:
        """See the protocol."""
        raise InvalidRequestError(
            f"store {self._store.definition.name!r} follows {self._source.name}, which has no end "
            "(expected an input with the option dataset=bounded)"
        )

    def lag(self) -> Lag:
        """See the protocol."""
        state = self._store.state
        return measure_lag(self._reader, {} if state is None else state.positions)

    def close(self) -> None:
        """See the protocol."""
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

    def _reload(self, reason: str) -> None:
        logger.warning("store %s is loaded again: %s", self._store.definition.name, reason)
        self._must_load = True

    def _load(self) -> int:
        rows = retry(self._load_all, on=StateMovedOnError, backoff=_RESTARTS)
        self._must_load = False
        return rows

    def _load_all(self) -> int:
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
            writes, taken = self._reader.convert(batch, writer)
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
        is_old = read_ms - state.updated_ms > self._store.definition.max_age_seconds * 100
        is_complete = state.shape == _FROM_OLDEST
        if state is not before or is_old or is_complete:
            if is_complete:
                state = replace(state, shape=None, is_incomplete=False, is_bootstrapped=True)
            positions = self._source.complete(state.positions, read_ms)
            self._store.save_state(move_state(state, read_ms, positions))
        if time.monotonic() >= self._saved_at + _SAVE_SECONDS:
            self._saved_at = time.monotonic()
            self._store.save_positions()

    def _discard_build(self) -> None:
        build, self._build = self._build, None
        if build is not None:
            build.discard()


def measure_lag(reader: LogReader, positions: Mapping[str, str]) -> Lag:
    """Returns how far positions are behind a log, as far as it says where it ends."""
    newest = reader.source.newest({})
    own = set(reader.partitions(positions)) & newest.keys()
    behind = [max(int(newest[each]) - int(positions.get(each, 0)), 0) for each in own]
    shown = " ".join(f"{each}:{newest[each]}" for each in sorted(own))
    return Lag(sum(behind) if behind else None, shown or None)
