"""Opens, creates and restores instances."""

import functools
import inspect
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sleeper import opening
from sleeper.admin import tables as table_admin
from sleeper.admin.clone import clone_table
from sleeper.api.argument_types import check_argument_types, unexpected_keyword
from sleeper.api.inference import infer_schema
from sleeper.api.instance_queries import InstanceQueries
from sleeper.api.notebook import instance_html
from sleeper.api.system_methods import SystemMethods
from sleeper.api.table import Table
from sleeper.api.table_versions import AsOf
from sleeper.backup.place import open_place_to_read
from sleeper.backup.restore import RestoreResult, instance_values, restore
from sleeper.backup.run import BackupResult, back_up
from sleeper.backup.work import OnProgress
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance as Ports
from sleeper.opening import open_instance as open_ports
from sleeper.schema.model import FieldType, Schema, schema_to_json
from sleeper.schema.user_json import parse_user_schema
from sleeper.statestore.version import parse_version
from sleeper.storage.network_folder import describe_network_folder
from sleeper.storage.source_options import make_source_options
from sleeper.tables import list_deleted
from sleeper.workers.run_status import RunStatus
from sleeper.workers.runner import run_instance

logger = logging.getLogger(__name__)


def open_instance(
    where: str | os.PathLike[str] | None = None, read_only: bool = False, upgrade: bool = False
) -> "Instance":
    """Opens an existing instance.

    `where` is the folder of a local instance, or `aws:<instance id>`. The default is the
    environment variable `SLEEPER_INSTANCE`.

    With `read_only`, or if the environment variable `SLEEPER_READ_ONLY` is set, nothing in the
    folder changes, also if another process writes to it: changes raise `InvalidRequestError`. A
    read then takes no hold, so it fails if garbage collection deletes its files.

    If an older version wrote the folder, `upgrade`, or the environment variable `SLEEPER_UPGRADE`,
    converts the states of its tables, and keeps a copy of each. Without it, `InvalidRequestError`
    announces the conversion.

    Raises `InvalidRequestError` if no instance is named, `NotFoundError` if the instance does
    not exist, and `DataError` if a newer version of Sleeper wrote its database.
    """
    ports = open_ports(where, read_only, upgrade)
    if ports.background is not None:
        _warn_of_network(ports.background.folder)
    return Instance(ports)


@functools.cache
def _warn_of_network(folder: Path) -> None:
    """Logs a warning once if the folder is on a network file system."""
    risk = describe_network_folder(folder)
    if risk is not None:
        logger.warning("%s", risk)


def create_instance(
    where: str | os.PathLike[str], properties: Mapping[str, str] | None = None
) -> "Instance":
    """Creates a local instance in a new or empty folder, and opens it.

    `properties` are instance properties by name. The instance's id is derived from the name of
    the folder. An instance on AWS is created by a deployment.

    Raises `InvalidRequestError` if the folder is not empty, for an unknown property or a value
    that is not valid, and for an `aws:` name.
    """
    opening.create_instance(where, None, properties)
    return open_instance(where)


def restore_instance(
    source: str | os.PathLike[str],
    where: str | os.PathLike[str] | None = None,
    at: str | None = None,
    tables: Sequence[str] = (),
    on_progress: OnProgress = lambda _done, _total: None,
) -> RestoreResult:
    """Restores tables from a backup into a new folder, or into an instance without these tables.

    `source` is the folder or `s3://bucket/prefix` of the backups, and `where` the instance as for
    `open_instance`. A folder that is no instance becomes one, with the id and the properties of
    the backup. `at` is the id of a backup or its beginning; the default is the newest. `tables`
    are names; the default is all tables. The result has `id` of the backup, and for each of
    `tables` its `name`, `number`, `files`, `rows`, `bytes` and `faults`. `on_progress` receives
    the number of bytes that were copied or checked, and the total.

    The tables become visible when all of their objects are verified. An interrupted call can be
    repeated. Raises `NotFoundError` if there is no such backup or table, `ConflictError` if a
    table exists, and `DataError` if an object of the backup is missing or damaged.
    """
    instance = opening.find_instance(where)
    try:
        like = None if instance is None else instance.storage.root
        location = open_place_to_read(os.fspath(source), like)
        backup_id = location.find(at)
        if instance is None:
            opening.create_instance(where, *instance_values(location.read(backup_id)))
            instance = open_ports(where)
        return restore(instance, location, backup_id, tables, on_progress)
    finally:
        if instance is not None:
            instance.close()


@check_argument_types
class Instance(InstanceQueries, SystemMethods):
    """An open instance: a context manager that closes it at the end.

    `instance["taxi"]` is the table of this name, and iteration yields the names of all tables. A
    notebook completes names, and shows the tables with their sizes.

    Several threads may use one object, and several processes may open one instance. An open
    instance does not survive a fork: start processes afresh and open the instance there.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Instance({self._ports.where!r})"

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def _ipython_key_completions_(self) -> list[str]:
        return self.tables()

    def _repr_html_(self) -> str:
        return instance_html(self._ports)

    def close(self) -> None:
        """Closes the databases and files of the instance."""
        self._ports.close()

    def tables(self) -> list[str]:
        """Returns the names of all tables, in the order of their UTF-8 bytes."""
        return [ref.name for ref in self._ports.tables.index.list()]

    def table(self, name: str) -> Table:
        """Returns the table of this name. Raises `NotFoundError` if it does not exist."""
        return Table(self._ports, name)

    def create_table(
        self,
        name: str,
        schema: Schema | Mapping[str, Any] | str | None = None,
        properties: Mapping[str, str] | None = None,
        split_points: Sequence[object] = (),
        like: Any = None,
        key: str | Sequence[str] = (),
        sort: str | Sequence[str] = (),
        **options: Any,
    ) -> Table:
        """Creates a table.

        `schema` is a `sleeper.schema.model.Schema`, or schema JSON as text or as a mapping. Instead
        of it, `like`, `key`, `sort` and `options` are the arguments of `infer_schema`. No row of
        `like` is ingested. `properties` are table properties by name. `split_points` are values of
        the first row key field, in ascending order, at which the key space is cut into partitions.

        Raises `InvalidRequestError` for a schema, property or split point that is not valid, and
        `ConflictError` if a table of this name exists.
        """
        for option in options:
            if option not in inspect.signature(self.infer_schema).parameters:
                raise unexpected_keyword(type(self), "create_table", option)
        if (schema is None) == (like is None) or (like is None and (key or sort or options)):
            raise InvalidRequestError("expected a schema, or like with key, sort and options")
        if schema is None:
            schema = self.infer_schema(like, key, sort, **options)
        if isinstance(schema, Schema):
            text = schema_to_json(schema)
        else:
            text = schema if isinstance(schema, str) else json.dumps(schema)
        parse_user_schema(text)
        table_admin.create_table(self._ports, name, text, properties, split_points)
        return self.table(name)

    def infer_schema(
        self,
        like: Any,
        key: str | Sequence[str],
        sort: str | Sequence[str] = (),
        types: Mapping[str, FieldType | str] | None = None,
        format: str | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
        header: bool | None = None,
        columns: Sequence[str] = (),
        nested: str | None = None,
    ) -> Schema:
        """Returns the schema of a table for rows like those of files, a frame or Arrow data.

        `like` is the path or paths of Parquet, CSV or JSON lines files, patterns and folders
        included, a pandas or Polars frame, or Arrow data or an Arrow schema. Of files, a bounded
        part is read. `key` and `sort` name the row key and sort key columns. All others become
        value fields, which are nullable unless their Arrow or Parquet columns are not. `types` are
        types of columns, such as `{"day": "IntType"}`, in place of the detected ones. The other
        arguments are those of `Table.ingest`.

        Raises `InvalidRequestError` with file and column if a key has no value or is missing in a
        file, if a column has a type that no field has, or types that do not go together.
        """
        options = make_source_options(format, delimiter, encoding, header, tuple(columns), nested)
        return infer_schema(self._ports, like, key, sort, types, options)

    def clone_table(self, source: str, name: str, as_of: AsOf | None = None) -> Table:
        """Creates a table on the files of a version of another. No data is copied.

        `as_of` is a transaction number, a time or an age, as for `Table.query`; the default is the
        newest version. The table has the rows, schema, partitions and properties of the version.
        Both tables change independently, and either can be deleted.

        Raises `NotFoundError` if the source does not exist, `ConflictError` if a table of the new
        name exists, and `InvalidRequestError` for a version that is not readable. A call after an
        interrupted one starts again.
        """
        version = None if as_of is None else parse_version(as_of)
        clone_table(self._ports, source, name, version)
        return self.table(name)

    def delete_table(self, name: str, now: bool = False) -> None:
        """Deletes a table. Its name is free at once; background work deletes its files later.

        `undelete_table` brings the table back for `sleeper.table.deletion.delay.hours`, unless
        `now` is true, which also ends the time of a table that was deleted before.

        Raises `NotFoundError` if the table does not exist.
        """
        table_admin.delete_table(self._ports, name, now)

    def deleted_tables(self) -> dict[str, str]:
        """Returns the names of the deleted tables that can be brought back, by id."""
        return {table.id: table.name for table in list_deleted(self._ports.tables.index)}

    def undelete_table(self, name: str) -> Table:
        """Brings a deleted table back, by its name or id, with rows, history and properties.

        Raises `NotFoundError` if there is no such table, `InvalidRequestError` if several have the
        name, and `ConflictError` if an existing table has it.
        """
        return self.table(table_admin.undelete_table(self._ports, name).name)

    def backup(
        self,
        destination: str | os.PathLike[str],
        tables: Sequence[str] = (),
        keep: int | None = None,
        on_progress: OnProgress = lambda _done, _total: None,
    ) -> BackupResult:
        """Backs up tables of the instance while it is in use, each at its newest version.

        `destination` is a folder or `s3://bucket/prefix`, which is empty or has earlier backups of
        the instance: only objects that it lacks are copied. `tables` are names; the default is all
        tables. `keep` deletes all but that many newest backups. The result has `id` of the
        backup, and for each of `tables` its `name`, `number`, `files`, `rows`, `bytes`,
        `copied_objects` and `copied_bytes`. `restore_instance` restores it. `on_progress` receives
        the number of bytes of data files that are done, and the total.

        Raises `InvalidRequestError` for a destination that is inside the instance or holds other
        files, `NotFoundError` for an unknown table, `ConflictError` if another backup to the
        destination runs, and `DataError` for a missing or damaged data file. A call can be
        repeated after any error.
        """
        return back_up(self._ports, os.fspath(destination), tables, keep, on_progress)

    def run_until_idle(self, workers: int | None = None) -> RunStatus:
        """Runs the background work of a local instance until none is left.

        The work is queued jobs, due work of systems, compaction, splitting, garbage
        collection and snapshots. `workers` is the number of worker processes. The default is the
        property `sleeper.local.workers`, or one per processor.

        Raises `InvalidRequestError` for an instance on AWS, which runs this work by itself.
        """
        return run_instance(self._ports, until_idle=True, workers=workers)
