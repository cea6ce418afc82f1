"""Bodies of log entries: compressed, the big ones as objects."""

import re
from collections.abc import Sequence
from contextlib import suppress

import obstore
import zstandard
from obstore.store import ObjectStore

from sleeper.datafiles.bucket_folder import store_errors
from sleeper.errors import DataError, NotFoundError

_LEVEL = 3
_NAME = re.compile(r"/log/(\d{19})-[0-9a-f]+\.json\.zst$")


class LogBodies:
    """The objects of one table's log, `<table id>/log/<first, 19 digits>-<write id>.json.zst`."""

    def __init__(self, objects: ObjectStore, table_id: str) -> None:
        self._objects = objects
        self._folder = f"{table_id}/log"

    def put(self, first_number: int, write_id: str, compressed: bytes) -> str:
        """Stores a body; its path. The entry that names it is to be written after."""
        path = f"{self._folder}/{first_number:019d}-{write_id}.json.zst"
        with store_errors(path):
            obstore.put(self._objects, path, compressed)
        return path

    def get(self, path: str) -> bytes:
        """A body as it was stored. NotFoundError names the object if it is gone."""
        with store_errors(path):
            return bytes(obstore.get(self._objects, path).bytes())

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes bodies; those that are gone already are no error."""
        for path in paths:
            with suppress(NotFoundError), store_errors(path):
                obstore.delete(self._objects, path)


def compress_body(body: str) -> bytes:
    """As an entry holds it."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(body.encode())


def decompress_body(first_number: int, compressed: bytes) -> str:
    """The opposite. DataError names the entry if it is damaged."""
    try:
        return zstandard.ZstdDecompressor().decompress(compressed).decode()
    except (zstandard.ZstdError, UnicodeDecodeError) as error:
        raise DataError(f"log entry {first_number} is damaged: {error}") from error


def number_of_body(path: str) -> int | None:
    """The first number of the entry that the object was written for, by its name."""
    found = _NAME.search(path)
    return int(found[1]) if found else None
