"""A version that is built of the messages of a log."""

from collections.abc import Mapping
from dataclasses import replace

from sleeper.adjunct.contents.writes import Writes
from sleeper.adjunct.feeds.log_reader import LogReader
from sleeper.adjunct.inputs.log import LogBatch
from sleeper.adjunct.store import Store, move_state
from sleeper.adjunct.store_build import StoreBuild


class LogBuild:
    """A version of the messages from `positions` on, which it moves. It outlives an update.

    So it goes on where it was after the log did not respond. After any error of its own it is
    discarded, and has to begin again.
    """

    def __init__(self, store: Store, reader: LogReader, positions: Mapping[str, str]) -> None:
        self._store = store
        self._reader = reader
        self._writer = reader.writer(None)
        self._build: StoreBuild | None = None
        self.positions = dict(positions)
        self.rows = 0
        self.is_open = True

    def add_snapshot(self) -> None:
        """Adds the data that the log changes."""
        try:
            for writes in self._reader.convert_all(self._reader.source.snapshot(), self._writer):
                self._write(writes)
        except BaseException:
            self.discard()
            raise

    def add(self, batch: LogBatch) -> LogBatch:
        """Adds the messages up to one that cannot be converted; returns what was added."""
        writes, taken = self._reader.convert(batch, self._writer)
        self._write(writes)
        self.positions |= taken.positions
        return taken

    def finish(self, read_ms: int, dataset: str | None = None) -> int:
        """Switches to the version. Returns the number of keys that were written."""
        positions = self._reader.source.complete(self.positions, read_ms)
        state = replace(
            self._store.new_state(),
            layout=self._writer.layout(),
            dataset=dataset,
            is_bootstrapped=True,
        )
        try:
            self._open().finish(move_state(state, read_ms, positions))
        finally:
            self.discard()
        self._store.save_positions()
        return self.rows

    def discard(self) -> None:
        """Deletes the version, unless it was finished. Idempotent."""
        self.is_open = False
        if self._build is not None:
            self._build.discard()

    def _open(self) -> StoreBuild:
        if self._build is None:
            self._build = self._store.new_build()
        return self._build

    def _write(self, writes: Writes) -> None:
        try:
            self.rows += self._open().write(writes)
        except BaseException:
            self.discard()
            raise
