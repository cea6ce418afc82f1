"""The exporter `python:CountIndex`, which keeps an index from counts to entities in PostgreSQL.

Each pair of a count and an entity is a row of `count_entries` with the sequence number of the last
export that inserted or removed it. Older exports do not change it, in whatever order they arrive.
The view `count_index` has the pairs that are not removed.
"""

import json
from urllib.parse import urlencode

from adbc_driver_manager import OperationalError
from adbc_driver_postgresql import dbapi

from sleeper.export_queue.exporter import ExportBatch

# Concurrent creations of a table fail, so they take turns.
_CREATE = """
DO $$
BEGIN
  PERFORM pg_advisory_xact_lock(1);
  CREATE TABLE IF NOT EXISTS count_entries (
    count bigint, entity text, is_removed boolean NOT NULL, sequence bigint NOT NULL,
    PRIMARY KEY (count, entity)
  );
  CREATE OR REPLACE VIEW count_index AS
    SELECT count, entity FROM count_entries WHERE NOT is_removed;
END
$$
"""
_WRITE = (
    "INSERT INTO count_entries AS held "
    "SELECT count, entity, is_removed, sequence FROM json_to_recordset(CAST($1 AS json)) "
    "AS given (count bigint, entity text, is_removed boolean, sequence bigint) "
    "ON CONFLICT (count, entity) DO UPDATE "
    "SET is_removed = EXCLUDED.is_removed, sequence = EXCLUDED.sequence "
    "WHERE held.sequence < EXCLUDED.sequence"
)


class CountIndex:
    """Writes the index. The option `database` is the URI of a database, without the password."""

    def __init__(self, options: dict[str, str]) -> None:
        self._uri = options["database"]
        if "password" in options:
            separator = "&" if "?" in self._uri else "?"
            self._uri += separator + urlencode({"password": options["password"]})
        self._connection: dbapi.Connection | None = None

    def export(self, batch: ExportBatch) -> None:
        """Inserts the new counts and removes the old ones, in one transaction."""
        entries: dict[tuple[int, str], dict[str, object]] = {}
        for entity, value, sequence in batch:
            changes = ((value["old_count"], True), (value["new_count"], False))
            for count, is_removed in changes:
                if count is not None:
                    entry = {"count": count, "entity": entity, "is_removed": is_removed}
                    # Exports of an entity are in order, so the last entry of a pair stays.
                    entries[count, entity] = {**entry, "sequence": sequence}
        # In one order, so that exporters of two buckets cannot wait for each other.
        ordered = [entries[pair] for pair in sorted(entries)]
        try:
            connection = self._connect()
            with connection.cursor() as cursor:
                cursor.execute(_WRITE, (json.dumps(ordered),))
            connection.commit()
        except OperationalError as error:
            self.close()
            # The exports wait until the database is back.
            raise ConnectionError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> dbapi.Connection:
        if self._connection is None:
            self._connection = dbapi.connect(self._uri)
            with self._connection.cursor() as cursor:
                cursor.execute(_CREATE)
            self._connection.commit()
        return self._connection
