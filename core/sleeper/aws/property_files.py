"""The property files of an instance in its config bucket (docs/formats.md, "Property files")."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.exceptions import NotFoundError as ObjectNotFoundError
from obstore.store import ObjectStore

from sleeper.errors import ConflictError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.properties.instance import ID
from sleeper.properties.values import (
    InstanceProperties,
    TableProperties,
    instance_properties_from_text,
    table_properties_from_text,
)
from sleeper.retries import Backoff, retry
from sleeper.storage.bucket import missing_object_error
from sleeper.tables.table_ref import TableId

if TYPE_CHECKING:
    from obstore import UpdateVersion

P = TypeVar("P", InstanceProperties, TableProperties)

INSTANCE_FILE = "instance.properties"
_TABLES_FOLDER = "tables"
_CONFLICTS_MAX = 20
_BACKOFF = Backoff(_CONFLICTS_MAX - 1, seconds_first=0.05, seconds_max=0.05)
# What one job asks for again and again. A change by somebody else is seen so much later.
_FRESH_SECONDS = 2.0


class _ChangedError(ConflictError):
    """Another process changed the file between its read and its replacement."""


class PropertyFiles:
    """Implements `TablePropertiesStore`, and the same for the instance. Safe for threads.

    A change replaces the file that it was made from, or is made again.
    """

    def __init__(self, store: ObjectStore, bucket_name: str) -> None:
        self.store = store
        self._bucket_name = bucket_name
        self._instance: tuple[float, InstanceProperties] | None = None

    def instance(self) -> InstanceProperties:
        """The instance's properties, as of two seconds ago at most.

        NotFoundError if there is no such file, UnavailableError if there was one before.
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
        """Sets these, unsetting those that are empty. The instance's id cannot change."""

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
        """Puts what `change` makes of the file's text, which is empty if there is none yet."""
        self._change(INSTANCE_FILE, change, is_made=True)
        self._instance = None

    def read(self, table_id: TableId) -> TableProperties:
        """The table's properties as they are now, or NotFoundError."""
        text, _ = self._read(_path(table_id))
        return table_properties_from_text(text, self.instance())

    def write(self, table_id: TableId, properties: TableProperties) -> None:
        """Replaces the table's properties."""
        with self._translated(_path(table_id)):
            obstore.put(self.store, _path(table_id), properties.to_text().encode())

    def change(self, table_id: TableId, changes: Mapping[str, str]) -> TableProperties:
        """Sets these, unsetting those that are empty; changes made at once do not lose any."""
        instance = self.instance()
        return self._change(
            _path(table_id),
            lambda text: table_properties_from_text(text, instance).with_values(changes),
        )

    def remove(self, table_id: TableId) -> None:
        """Deletes the table's file. Nothing happens if there is none."""
        with contextlib.suppress(NotFoundError), self._translated(_path(table_id)):
            obstore.delete(self.store, _path(table_id))

    def written_ms(self) -> dict[TableId, int]:
        """The tables that have a file, with the time it was written."""
        with self._translated(_TABLES_FOLDER):
            return {
                TableId(name.removeprefix("table-").removesuffix(".properties")): round(
                    found["last_modified"].timestamp() * 1000
                )
                for page in obstore.list(self.store, prefix=_TABLES_FOLDER)
                for found in page
                if (name := found["path"].rpartition("/")[2]).startswith("table-")
            }

    def _read(self, path: str) -> tuple[str, str | None]:
        """The text, and what stands for this version of it."""
        with self._translated(path):
            found = obstore.get(self.store, path)
            return bytes(found.bytes()).decode(), found.meta["e_tag"]

    def _change(self, path: str, change: Callable[[str], P], is_made: bool = False) -> P:
        """`is_made`: a file that is not there is made, where else it is NotFoundError."""

        def attempt() -> P:
            mode: UpdateVersion | Literal["create"]
            try:
                text, e_tag = self._read(path)
                mode = {"e_tag": e_tag}
            except NotFoundError:
                if not is_made:
                    raise
                text, mode = "", "create"
            after = change(text)
            try:
                with self._translated(path):
                    obstore.put(self.store, path, after.to_text().encode(), mode=mode)
            except ConflictError as error:
                raise _ChangedError(
                    f"{path} was changed by others {_CONFLICTS_MAX} times in a row"
                ) from error
            return after

        return retry(attempt, on=_ChangedError, backoff=_BACKOFF)

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        where = f"s3://{self._bucket_name}/{path}"
        try:
            yield
        except (ObjectNotFoundError, FileNotFoundError) as error:
            raise missing_object_error(where, error) from error
        except (AlreadyExistsError, PreconditionError) as error:
            raise ConflictError(f"{where} was changed by somebody else") from error
        except (BaseError, OSError) as error:
            raise UnavailableError(f"{where}: {error}") from error


def _path(table_id: TableId) -> str:
    return f"{_TABLES_FOLDER}/table-{table_id}.properties"
