"""States of tables and data files as older versions wrote them."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import FIELD_ID, view_schema
from sleeper.schema.model import Schema


def write_file_of_release_0_2(path: Path, rows: pa.Table, schema: Schema) -> None:
    """Writes a data file without field ids."""
    pq.write_table(rows.cast(view_schema(schema)), path, store_schema=False)


def write_file_of_fields(path: Path, rows: pa.Table, schema: Schema) -> None:
    """Writes a data file with ids of fields only, whose elements of lists are `element`."""
    fields = zip(view_schema(schema), schema.fields, strict=True)
    kind = pa.schema([each.with_metadata({FIELD_ID: str(f.id)}) for each, f in fields])
    pq.write_table(rows.cast(kind), path, store_schema=False)


def make_format_3(path: Path) -> None:
    """Brings a closed state without deletes to the format of version 0.2.0."""
    with closing(sqlite3.connect(path)) as state:
        state.executescript(
            "CREATE TABLE old (partition INTEGER NOT NULL, file INTEGER NOT NULL,"
            " rows INTEGER NOT NULL, added INTEGER NOT NULL, removed INTEGER, job INTEGER,"
            " PRIMARY KEY (partition, file)) WITHOUT ROWID;"
            "INSERT INTO old SELECT * FROM refs; DROP TABLE refs; ALTER TABLE old RENAME TO refs;"
            "CREATE INDEX refs_by_file ON refs (file); DROP TABLE deletes;"
            "DROP TABLE key_files;"
            "DROP TABLE history; ALTER TABLE files DROP COLUMN applied; PRAGMA user_version = 3"
        )
