"""Builds a version of a dataset in a process of its own.

Lookups of the process that serves would wait for a load, because RocksDB is opened, written and
closed with Python's lock. The child process writes the version, and this one opens the result.
"""

import contextlib
import json
import select
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from sleeper import errors
from sleeper.adjunct.contents.writes import Writes
from sleeper.adjunct.definition import EngineType, StoreDefinition, parse_partition
from sleeper.adjunct.engines.disk import open_disk_engine
from sleeper.adjunct.folder import StoreFolder
from sleeper.adjunct.inputs.dataset import Dataset
from sleeper.adjunct.inputs.opening import OpenInstance, open_dataset_input
from sleeper.adjunct.store import Store, move_state, new_state
from sleeper.adjunct.store_state import StoreState, encode_state
from sleeper.clock import Clock
from sleeper.errors import SleeperError, UnavailableError
from sleeper.json_codec import JsonCodec

_CHECK_SECONDS = 0.2


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

    def definition(self) -> StoreDefinition:
        partition = None if self.partition is None else parse_partition(self.partition)
        return StoreDefinition(self.name, self.input, partition=partition)


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

            def write(folder: StoreFolder, version: str) -> int:
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
        self, definition: StoreDefinition, folder: StoreFolder, version: str, dataset: str
    ) -> bytes:
        request = DatasetRequest(
            definition.name,
            definition.input,
            definition.partition_text,
            str(folder.path.parent.resolve()),
            version,
            dataset,
            self.instance,
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
    source = open_dataset_input(definition, instance, folder.spill)
    assert source is not None

    def count(writes: Iterator[Writes]) -> Iterator[Writes]:
        for each in writes:
            yield each
            on_rows(len(each))

    with source.open(request.dataset) as dataset:
        engine = open_disk_engine(definition.name, folder.data(request.version))
        try:
            if dataset.is_sorted:
                engine.load(count(dataset.writes), b"")
            else:
                for each in count(dataset.writes):
                    engine.apply((each,), b"")
            engine.apply((), encode_state(loaded_state(definition, dataset, clock())))
            engine.sync()
        finally:
            engine.close()


def loaded_state(definition: StoreDefinition, dataset: Dataset, now_ms: int) -> StoreState:
    """Returns the state of a version with all data of a dataset."""
    state = replace(
        new_state(definition),
        layout=dataset.layout(),
        dataset=dataset.name,
        is_bootstrapped=True,
    )
    return move_state(state, now_ms, dataset.positions)


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
