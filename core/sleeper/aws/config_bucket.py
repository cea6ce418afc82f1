"""The config bucket: property files (docs/formats.md, "Property files") and wheels."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import ObjectStore

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.properties.declaration import Property
from sleeper.properties.instance import ID
from sleeper.properties.values import (
    InstanceProperties,
    TableProperties,
    instance_properties_from_text,
    table_properties_from_text,
)
from sleeper.retries import Backoff, retry
from sleeper.storage.bucket import missing_object_error
from sleeper.tables import TableId
from sleeper.user_code.registry import StoredWheel

if TYPE_CHECKING:
    from obstore import UpdateVersion

P = TypeVar("P", InstanceProperties, TableProperties)

INSTANCE_FILE = "instance.properties"
_TABLES_FOLDER = "tables"
_CODE_FOLDER = "code"
_CONFLICTS_MAX = 20
_BACKOFF = Backoff(_CONFLICTS_MAX - 1, seconds_first=0.05, seconds_max=0.05)
# A job reads the properties often; it sees a change of another process this much later.
_FRESH_SECONDS = 2.0


def deployed_value(properties: InstanceProperties, declaration: Property[str | None]) -> str:
    """Returns a property that the deployment sets. InvalidRequestError if it is not set."""
    value = properties.get(declaration)
    if value is None:
        raise InvalidRequestError(
            f"property {declaration.name} is not set: deploy the instance again"
        )
    return value


class _ChangedError(ConflictError):
    """Another process changed the file between its read and its replacement."""


class PropertyFiles:
    """Implements `sleeper.instance.TablePropertiesStore`, and the same for the instance.

    A change is conditional on the file that it read, and is repeated on a conflict. Safe for
    threads.
    """

    def __init__(self, store: ObjectStore, bucket_name: str) -> None:
        self.store = store
        self.bucket_name = bucket_name
        self._instance: tuple[float, InstanceProperties] | None = None

    def instance(self) -> InstanceProperties:
        """Returns the instance's properties, at most two seconds old.

        NotFoundError if the file does not exist, UnavailableError if it did before.
        """
        kept = self._instance
        if kept is None or time.monotonic() - kept[0] > _FRESH_SECONDS:
            try:
                text, _ = self._read(INSTANCE_FILE)
            except NotFoundError as error:
                if kept is None:
                    raise
                raise UnavailableError(str(error)) from error
            kept = self._instance = time.monotonic(), instance_properties_from_text(text)
        return kept[1]

    def change_instance(self, changes: Mapping[str, str]) -> InstanceProperties:
        """Sets values; an empty value unsets its property. The instance's id cannot change."""

        def change(text: str) -> InstanceProperties:
            before = instance_properties_from_text(text)
            after = before.with_values(changes)
            if after.get(ID) != before.get(ID):
                raise InvalidRequestError(f"property {ID.name} cannot change")
            return after

        after = self._change(INSTANCE_FILE, change)
        self._instance = None
        return after

    def write_instance(self, change: Callable[[str], InstanceProperties]) -> None:
        """Replaces the file's text by the result of `change`, which gets "" for a missing file."""
        self._change(INSTANCE_FILE, change, create=True)
        self._instance = None

    def read(self, table_id: TableId) -> TableProperties:
        text, _ = self._read(_path(table_id))
        return table_properties_from_text(text, self.instance())

    def write(self, table_id: TableId, properties: TableProperties) -> None:
        with self._errors(_path(table_id)):
            obstore.put(self.store, _path(table_id), properties.to_text().encode())

    def change(self, table_id: TableId, changes: Mapping[str, str]) -> TableProperties:
        """See the port. Concurrent changes are all kept."""
        instance = self.instance()
        return self._change(
            _path(table_id),
            lambda text: table_properties_from_text(text, instance).with_values(changes),
        )

    def remove(self, table_id: TableId) -> None:
        """Deletes the table's file if it exists."""
        with contextlib.suppress(NotFoundError), self._errors(_path(table_id)):
            obstore.delete(self.store, _path(table_id))

    def written_ms(self) -> dict[TableId, int]:
        """Returns the times at which the files of tables were written."""
        with self._errors(_TABLES_FOLDER):
            return {
                TableId(name.removeprefix("table-").removesuffix(".properties")): round(
                    listed["last_modified"].timestamp() * 1000
                )
                for page in obstore.list(self.store, prefix=_TABLES_FOLDER)
                for listed in page
                if (name := listed["path"].rpartition("/")[2]).startswith("table-")
            }

    def _read(self, path: str) -> tuple[str, str | None]:
        """Returns the text and its version's tag."""
        with self._errors(path):
            result = obstore.get(self.store, path)
            return bytes(result.bytes()).decode(), result.meta["e_tag"]

    def _change(self, path: str, change: Callable[[str], P], create: bool = False) -> P:
        """Replaces the file. NotFoundError if it does not exist, unless `create` is set."""

        def attempt() -> P:
            mode: UpdateVersion | Literal["create"]
            try:
                text, e_tag = self._read(path)
                mode = {"e_tag": e_tag}
            except NotFoundError:
                if not create:
                    raise
                text, mode = "", "create"
            after = change(text)
            try:
                with self._errors(path):
                    obstore.put(self.store, path, after.to_text().encode(), mode=mode)
            except ConflictError as error:
                raise _ChangedError(
                    f"{path} was changed by other processes {_CONFLICTS_MAX} times in a row"
                ) from error
            return after

        return retry(attempt, on=_ChangedError, backoff=_BACKOFF)

    def _errors(self, path: str) -> contextlib.AbstractContextManager[None]:
        return _translate_errors(f"s3://{self.bucket_name}/{path}")


@dataclass(frozen=True, slots=True)
class CodeObjects:
    """Implements `sleeper.user_code.registry.WheelStore`: objects below `code/`.

    Safe for threads.
    """

    store: ObjectStore

    def list(self) -> list[StoredWheel]:
        """See the port. Objects in folders below are ignored."""
        with _translate_errors(f"{_CODE_FOLDER} of the config bucket"):
            listed = obstore.list_with_delimiter(self.store, prefix=_CODE_FOLDER)["objects"]
        tags = [(each["path"].rpartition("/")[2], str(each["e_tag"])) for each in listed]
        return [StoredWheel(name, tag) for name, tag in sorted(tags) if name.endswith(".whl")]

    def read(self, file_name: str) -> bytes:
        with _wheel_errors(file_name) as path:
            return bytes(obstore.get(self.store, path).bytes())

    def write(self, file_name: str, content: bytes) -> None:
        with _wheel_errors(file_name) as path:
            obstore.put(self.store, path, content)

    def delete(self, file_name: str) -> None:
        with contextlib.suppress(NotFoundError), _wheel_errors(file_name) as path:
            obstore.delete(self.store, path)


@contextlib.contextmanager
def _wheel_errors(file_name: str) -> Iterator[str]:
    path = f"{_CODE_FOLDER}/{file_name}"
    with _translate_errors(f"{path} of the config bucket"):
        yield path


@contextlib.contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Raises `sleeper.errors`, naming the object, for errors of the object store."""
    try:
        yield
    except (ObjectNotFoundError, FileNotFoundError) as error:
        raise missing_object_error(where, error) from error
    except (AlreadyExistsError, PreconditionError) as error:
        raise ConflictError(f"{where} was changed by another process") from error
    except (BaseError, OSError) as error:
        raise UnavailableError(f"{where}: {error}") from error


def _path(table_id: TableId) -> str:
    return f"{_TABLES_FOLDER}/table-{table_id}.properties"
