"""States of tables as older versions wrote them."""

import sqlite3
from contextlib import closing
from pathlib import Path


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
