"""The feed of a log that delivers whole datasets, each of which ends with markers."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from sleeper.adjunct.definition import move_state
from sleeper.adjunct.extraction import Envelope, Extract, Process, own_pair
from sleeper.adjunct.feeds.feed import Feed, StartAction, begin
from sleeper.adjunct.feeds.log_reader import (
    Alignment,
    CatchUp,
    LogBuild,
    LogReader,
    end_at_markers,
    measure_lag,
)
from sleeper.adjunct.inputs.log import LogInput
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.errors import InvalidRequestError, StateMovedOnError

logger = logging.getLogger(__name__)


class LogDatasetFeed(Feed):
    """Builds a version of the messages up to the marker of every partition.

    A partition is not read after its marker until all others have reached theirs. Two datasets
    in succession have different names, so a marker that is delivered again is recognized. Only
    the newest dataset is built of those that are complete at the start.
    """

    def __init__(
        self, store: Store, source: LogInput, extract: Extract | Process = own_pair
    ) -> None:
        super().__init__(store)
        self._source = source
        self._reader = LogReader(store.definition, source, extract)
        self._build: LogBuild | None = None
        self._alignment: Alignment | None = None
        self._marked: dict[str, Envelope] = {}
        self._start: Mapping[str, str] = {}
        self._last: str | None = None

    def start(self) -> StartAction:
        """A version serves until the next one is complete, whatever its age."""
        action = begin(self._store, None)
        state = self._store.state
        if action is StartAction.LOAD:
            self._must_load = True
        elif state is not None:
            self._start, self._last = state.positions, state.dataset
        else:
            self._start = self._store.saved_positions()
            self._must_load = not self._start
        return action

    def update(self) -> int:
        """Reads up to the messages that the log has at the call."""
        try:
            return self._read()
        except StateMovedOnError as error:
            name = self._store.definition.name
            logger.warning("store %s skips datasets that are not whole: %s", name, error)
            self._restart()
            return self._read()

    def seal(self) -> None:
        """The dataset ends with the messages that were read."""
        build = self._build
        if build is None or not build.rows:
            raise InvalidRequestError(
                f"store {self._store.definition.name!r}: nothing of a next dataset was read from "
                f"{self._source.name} (expected messages after the end of the last one)"
            )
        read_ms = self._store.clock()
        time = datetime.fromtimestamp(read_ms / 1000, UTC).isoformat(timespec="milliseconds")
        self._finish(build, f"sealed at {time}", read_ms)

    def lag(self) -> Lag:
        """The messages of the next dataset are not behind if they were read."""
        state = self._store.state
        return measure_lag(
            self._reader, self._positions() or ({} if state is None else state.positions)
        )

    def close(self) -> None:
        self._discard_build()
        self._source.close()

    def _read(self) -> int:
        if self._must_load:
            self._restart()
            self._must_load = False
        read_ms, rows = self._store.clock(), 0
        catch_up = self._catch_up()
        if self._alignment is not None:
            if not self._align(self._alignment, catch_up):
                return 0
            catch_up = self._catch_up()
        while True:
            build = self._open_build()
            partitions = self._reader.partitions(build.positions)
            if partitions and all(each in self._marked for each in partitions):
                rows += self._complete(build, read_ms)
                if self._alignment is not None:
                    return rows
                continue
            rest = [p for p in catch_up.remaining(build.positions) if p not in self._marked]
            if not rest:
                break
            self._add(build, catch_up, [p for p in partitions if p not in self._marked])
        self._touch(read_ms, build)
        return rows

    def _catch_up(self) -> CatchUp:
        return self._reader.catch_up(self._positions())

    def _add(self, build: LogBuild, catch_up: CatchUp, partitions: list[str]) -> None:
        batch = end_at_markers(catch_up.poll(build.positions, partitions))
        taken = build.add(batch)
        catch_up.note(taken)
        for marker in taken.envelopes:
            if not marker.is_end_of_dataset:
                continue
            if marker.value == self._last:
                name = self._store.definition.name
                logger.info("store %s: ignored the repeated marker at %s", name, marker)
            else:
                self._marked[marker.partition] = marker

    def _complete(self, build: LogBuild, read_ms: int) -> int:
        """Ends the dataset, as all partitions have their marker."""
        markers, self._marked = self._marked, {}
        names = {str(marker.value) for marker in markers.values()}
        if len(names) == 1:
            return self._finish(build, names.pop(), read_ms)
        ends = ", ".join(f"{m.value!r} in partition {p}" for p, m in sorted(markers.items()))
        name = self._store.definition.name
        logger.warning("store %s skips datasets with different markers: %s", name, ends)
        self._alignment = Alignment(build.positions, False, markers.values())
        self._discard_build()
        return 0

    def _finish(self, build: LogBuild, dataset: str, read_ms: int) -> int:
        rows = build.finish(read_ms, dataset)
        self._build, self._start, self._last = None, build.positions, dataset
        name = self._store.definition.name
        logger.info("store %s: switched to dataset %s of %d messages", name, dataset, rows)
        return rows

    def _align(self, alignment: Alignment, catch_up: CatchUp) -> bool:
        """Moves to the beginning of a dataset. False if the log has none yet."""
        while catch_up.remaining(alignment.positions):
            batch = catch_up.poll(alignment.positions, self._reader.partitions(alignment.positions))
            alignment.add(batch)
            catch_up.note(batch)
        start = alignment.find_start(self._reader.partitions(alignment.positions))
        if start is None:
            return False
        self._last, self._start = start
        self._alignment = None
        return True

    def _restart(self) -> None:
        """Begins with the oldest messages, which may be the middle of a dataset."""
        self._discard_build()
        self._start, self._last, self._marked = {}, None, {}
        self._alignment = Alignment({}, self._source.is_whole())

    def _positions(self) -> Mapping[str, str]:
        if self._alignment is not None:
            return self._alignment.positions
        return self._start if self._build is None else self._build.positions

    def _open_build(self) -> LogBuild:
        if self._build is None or not self._build.is_open:
            self._marked = {}
            self._build = LogBuild(self._store, self._reader, self._start)
        return self._build

    def _discard_build(self) -> None:
        build, self._build = self._build, None
        if build is not None:
            build.discard()

    def _touch(self, read_ms: int, build: LogBuild) -> None:
        """Records from time to time that the log has no newer dataset."""
        state = self._store.state
        if state is None or not self._is_old(read_ms):
            return
        positions = state.positions
        if all(positions.get(each) == at for each, at in build.positions.items()):
            positions = self._source.complete(positions, read_ms)
        self._store.save_state(move_state(state, read_ms, positions))
