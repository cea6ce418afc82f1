"""The wheels of an AWS instance: objects below `code/` in its config bucket."""

from collections.abc import Iterator
from contextlib import contextmanager

import obstore
from obstore.exceptions import BaseError
from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import ObjectStore

from sleeper.errors import NotFoundError, UnavailableError
from sleeper.storage.bucket import missing_object_error
from sleeper.user_code.registry import StoredWheel

_FOLDER = "code"
_ENDING = ".whl"


class CodeObjects:
    """Implements `sleeper.user_code.registry.WheelStore`. Safe for threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def list(self) -> list[StoredWheel]:
        """See the port. What is in folders below is none."""
        with _translated(_FOLDER):
            listed = obstore.list_with_delimiter(self._store, prefix=_FOLDER)["objects"]
        found = [(each["path"].rpartition("/")[2], str(each["e_tag"])) for each in listed]
        return [StoredWheel(name, tag) for name, tag in sorted(found) if name.endswith(_ENDING)]

    def read(self, file_name: str) -> bytes:
        """See the port."""
        with _translated(_path(file_name)):
            return bytes(obstore.get(self._store, _path(file_name)).bytes())

    def write(self, file_name: str, content: bytes) -> None:
        """See the port."""
        with _translated(_path(file_name)):
            obstore.put(self._store, _path(file_name), content)

    def delete(self, file_name: str) -> None:
        """See the port."""
        try:
            with _translated(_path(file_name)):
                obstore.delete(self._store, _path(file_name))
        except NotFoundError:
            return


def _path(file_name: str) -> str:
    return f"{_FOLDER}/{file_name}"


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except (ObjectNotFoundError, FileNotFoundError) as error:
        raise missing_object_error(f"{path} of the config bucket", error) from error
    except (BaseError, OSError) as error:
        raise UnavailableError(f"{path} of the config bucket: {error}") from error
