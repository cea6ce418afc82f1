"""Engines that read published tables, in a process of the environment `.venv/engines`."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

_PYTHON = Path(sys.prefix) / "engines/bin/python"
ENGINES = ("pyiceberg", "polars", "daft", "duckdb", "duckdb-iceberg")
"""DuckDB reads by PyIceberg, and by its own extension."""

Rows = Counter[tuple[tuple[str, str], ...]]
"""Rows in no order: the names and values of each."""


class Readers:
    """A process that reads tables with other engines."""

    def __init__(self) -> None:
        assert _PYTHON.exists(), f"{_PYTHON} does not exist: make install"
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [_PYTHON, "-W", "ignore", Path(__file__).with_name("reader.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._folder.cleanup()

    def read(
        self,
        engine: str,
        snapshot: int | None = None,
        columns: list[str] | None = None,
        **source: str,
    ) -> pa.Table:
        """Returns the rows of a snapshot, by default the current one.

        Polars reads the `columns` only, if they are given.

        The source is the address of `metadata`, or the `uri` of a catalog with the `table` and
        perhaps a `token`.
        """
        out = Path(self._folder.name) / "rows.arrow"
        answer = self.ask(engine=engine, snapshot=snapshot, columns=columns, out=str(out), **source)
        assert answer == "read"
        with pa.ipc.open_file(out.read_bytes()) as file:
            return file.read_all()

    def ask(self, **request: Any) -> Any:
        """Returns the answer to a request. RuntimeError with the error of the engine."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{request['engine']}: {answer['error']}")
        return answer["answer"]


def count_rows(table: pa.Table) -> Rows:
    """Returns the rows of a table, with values in one form for all engines."""
    return Counter(
        tuple((name, _plain(value)) for name, value in row.items()) for row in table.to_pylist()
    )


def _plain(value: Any) -> str:
    if isinstance(value, list):
        pairs = [tuple(each.values()) if isinstance(each, dict) else each for each in value]
        return repr(pairs)
    return str(value)
