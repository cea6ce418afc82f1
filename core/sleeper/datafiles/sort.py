"""Rows in any order, sorted by key in bounded memory.

What is to be sorted are Parquet files: those a user brought, if they can be scanned as
they are, and staged ones, into which everything else was checked and cast. Files of one
schema are linked into one folder, so that the engine reads them one after another and
sorts in as many runs as it has threads, not as many as there are files.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema, view_schema
from sleeper.datafiles.predicate import column, key_order
from sleeper.datafiles.session import (
    EngineSettings,
    engine_errors,
    engine_url,
    new_table_name,
    open_session,
    stream,
)
from sleeper.errors import UnavailableError
from sleeper.schema.model import Schema

_STAGED_ROWS_MAX = 1_000_000
_STAGED_BYTES_MAX = 256 * 1024 * 1024


@dataclass(slots=True)
class UnsortedRows:
    """Parquet files to sort, gathered in a folder of local disk that the caller deletes."""

    schema: Schema
    folder: Path
    rows: int = 0
    _groups: dict[str, Path] = field(default_factory=dict)

    def add_file(self, path: Path, kind: pa.Schema, rows: int) -> None:
        """A Parquet file that can be scanned as it is."""
        group = self._group(str(kind))
        os.symlink(path.resolve(), group / f"{uuid.uuid4().hex}.parquet")
        self.rows += rows

    def add_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Batches of the table's Arrow schema, staged on local disk."""
        kind = arrow_schema(self.schema)
        writer: pq.ParquetWriter | None = None
        rows = size = 0
        try:
            for batch in batches:
                if writer is None:
                    path = self._group("staged") / f"{uuid.uuid4().hex}.parquet"
                    writer = pq.ParquetWriter(
                        path, kind, compression="lz4", use_dictionary=False, write_statistics=False
                    )
                writer.write_batch(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
                self.rows += batch.num_rows
                if rows >= _STAGED_ROWS_MAX or size >= _STAGED_BYTES_MAX:
                    writer.close()
                    writer, rows, size = None, 0, 0
        finally:
            if writer is not None:
                writer.close()

    def folders(self) -> Sequence[Path]:
        """One folder per schema of files."""
        return list(self._groups.values())

    def _group(self, name: str) -> Path:
        if name not in self._groups:
            group = self.folder / f"unsorted-{len(self._groups)}"
            group.mkdir()
            self._groups[name] = group
        return self._groups[name]


def sort(unsorted: UnsortedRows, settings: EngineSettings) -> Iterator[pa.RecordBatch]:
    """All rows in key order, as batches of the engine's own types. Spills beyond its memory."""
    session = open_session(settings, partitions=settings.threads)
    frames = []
    for folder in unsorted.folders():
        name = new_table_name()
        with engine_errors():
            session.register_parquet(name, engine_url(folder, is_folder=True))
        frame = session.table(name)
        found = frame.schema()
        frames.append(
            frame.select(
                *(
                    column(f.name)
                    if found.field(f.name).type == f.type
                    else column(f.name).cast(f.type).alias(f.name)
                    for f in view_schema(unsorted.schema)
                )
            )
        )
    if not frames:
        return
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    if len(frames) > 1:
        whole = whole.repartition(settings.threads)
    found_rows = 0
    for batch in stream(session, whole.sort(*key_order(unsorted.schema))):
        found_rows += batch.num_rows
        yield batch
    if found_rows != unsorted.rows:
        raise UnavailableError(
            f"{found_rows} rows were sorted of {unsorted.rows}: an input file has changed meanwhile"
        )
