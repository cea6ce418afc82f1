"""The feed of an input whose datasets replace each other: snapshot tables, stashes, files.

Lookups of the process that serves would wait for a load, because RocksDB is opened, written and
closed with Python's lock. So a child process writes the next version, and this one opens it.
"""

import contextlib
import json
import logging
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sleeper import errors
from sleeper.adjunct.definition import (
    EngineType,
    StoreDefinition,
    StoreState,
    encode_state,
    loaded_state,
    parse_store,
)
from sleeper.adjunct.engines import open_disk_engine
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.engines.expiring import with_expiry
from sleeper.adjunct.feeds.feed import RESTARTS, Feed, StartAction, begin, load_dataset
from sleeper.adjunct.inputs import open_dataset_input
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.inputs.opening import OpenInstance
from sleeper.adjunct.versions.folder import StoreFolder, VersionName
from sleeper.adjunct.versions.status import Lag
from sleeper.adjunct.versions.store import Store
from sleeper.clock import Clock
from sleeper.errors import InvalidRequestError, SleeperError, StateMovedOnError, UnavailableError
from sleeper.json_codec import JsonCodec
from sleeper.retries import retry

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2


class DatasetFeed(Feed):
    """Builds a version of each newest dataset beside the one that serves."""

    def __init__(
        self, store: Store, source: DatasetInput, process: "DatasetProcess | None" = None
    ) -> None:
        super().__init__(store)
        self._source = source
        self._process = process

    def start(self) -> StartAction:
        """There are no changes to go on with, so `update` loads a dataset."""
        action = begin(self._store, None)
        self._store.fix()
        return action

    def update(self) -> int:
        newest = self._source.newest()
        state = self._store.state
        if newest is None:
            return 0
        if state is not None and not self._must_load and self._has(state, newest):
            now_ms = self._store.clock()
            if self._is_old(now_ms):
                self._store.touch(now_ms)
            return 0
        rows = retry(self._load_newest, on=StateMovedOnError, backoff=RESTARTS)
        self._must_load = False
        return rows

    def seal(self) -> None:
        raise InvalidRequestError(
            f"store {self._store.definition.name!r}: datasets of {self._store.definition.input} "
            "are complete when they appear (expected a store that is filled from a stream)"
        )

    def lag(self) -> Lag:
        newest, state = self._source.newest(), self._store.state
        if newest is None:
            return Lag(0, None)
        return Lag(int(state is None or state.dataset != newest), newest)

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
        with self._source.open(name) as dataset:
            rows = load_dataset(self._store, dataset, name)
        self._store.fix()
        return rows


@dataclass(frozen=True, slots=True)
class DatasetRequest:
    """The dataset to write, into which version of a store. `instance` names that of a table."""

    name: str
    input: str
    partition: str | None
    folder: str
    version: str
    dataset: str
    instance: str | None
    ttl_ms: int | None = None

    def definition(self) -> StoreDefinition:
        definition = parse_store(self.name, self.input, partition=self.partition)
        return replace(definition, ttl_ms=self.ttl_ms)


REQUESTS = JsonCodec(DatasetRequest)


@dataclass(frozen=True, slots=True)
class DatasetProcess:
    """The `command` of a process that reads one request as a line, and then its end.

    It answers with a line of JSON each: `{}` when it has begun, `{"rows": N}` for N more keys,
    `{"done": true}`, or `{"error": CLASS, "reason": TEXT}`. It ends when its input does.
    """

    command: Sequence[str]
    instance: str | None

    def build(self, store: Store, dataset: str) -> int | None:
        """Switches to a version of the dataset. Returns its number of keys.

        None if the store is in memory, or no process can be started here. Raises the errors of the
        input, and UnavailableError if the process dies.
        """
        if store.definition.type is not EngineType.ROCKSDB:
            return None
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # so that Ctrl-C does not reach it
            )
        except OSError:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                return None
            answers = _Answers(process.stdout, store)
            request = process.stdin

            def write(folder: StoreFolder, version: VersionName) -> int:
                request.write(self._request(store.definition, folder, version, dataset))
                request.flush()
                return answers.read()

            return store.build_apart(write)
        except BrokenPipeError as error:
            raise _died(store) from error
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def _request(
        self, definition: StoreDefinition, folder: StoreFolder, version: VersionName, dataset: str
    ) -> bytes:
        request = DatasetRequest(
            definition.name,
            definition.input,
            definition.partition_text,
            str(folder.path.parent.resolve()),
            str(version),
            dataset,
            self.instance,
            definition.ttl_ms,
        )
        return REQUESTS.format(request).encode() + b"\n"


class _Answers:
    """The answers to a request."""

    def __init__(self, lines: IO[bytes], store: Store) -> None:
        self._lines = lines
        self._store = store

    def read(self) -> int:
        """Returns the number of keys, when the process is done."""
        rows = 0
        while True:
            while not select.select([self._lines], [], [], _CHECK_SECONDS)[0]:
                self._store.note_progress(0)  # raises if the store is being closed
            line = self._lines.readline()
            if not line:
                raise _died(self._store)
            answer = json.loads(line)
            if "done" in answer:
                return rows
            if "error" in answer:
                kind = getattr(errors, answer["error"], UnavailableError)
                raise kind(answer["reason"])
            rows += answer["rows"]
            self._store.note_progress(answer["rows"])


def write_dataset(
    request: DatasetRequest, instance: OpenInstance, clock: Clock, on_rows: Callable[[int], object]
) -> None:
    """Writes the version of a request, durably, in the process that was started for it."""
    definition = request.definition()
    folder = StoreFolder(Path(request.folder), definition.name)
    version = VersionName.parse(request.version)
    assert version is not None
    source = open_dataset_input(definition, instance, folder.spill)

    def count(writes: Iterator[Writes]) -> Iterator[Writes]:
        for each in writes:
            yield each
            on_rows(len(each))

    with source.open(request.dataset) as dataset:
        on_disk = open_disk_engine(definition.name, folder.data(version))
        engine = with_expiry(on_disk, definition.ttl_ms, clock)
        try:
            if dataset.is_sorted:
                engine.load(count(dataset.writes), b"")
            else:
                for each in count(dataset.writes):
                    engine.apply((each,), b"")
            layout, positions = dataset.layout(), dataset.positions
            state = loaded_state(definition, clock(), layout, positions, dataset.name)
            engine.apply((), encode_state(state))
            engine.sync()
        finally:
            engine.close()


def describe_failure(error: Exception) -> dict[str, str]:
    """Returns the answer of a process that failed."""
    kind = next(
        (each for each in type(error).__mro__ if each.__module__ == SleeperError.__module__), None
    )
    if kind is None:
        reason = f"{type(error).__name__}: {error}"
        return {"error": UnavailableError.__name__, "reason": reason}
    return {"error": kind.__name__, "reason": str(error)}


def _died(store: Store) -> UnavailableError:
    return UnavailableError(
        f"store {store.definition.name!r}: the process that built its next version died"
    )
