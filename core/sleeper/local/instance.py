"""Creates and opens the instance of a folder. Users' files are local files and objects in S3."""

import atexit
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import BackgroundWork, Instance, Jobs, Queries, Storage, Tables
from sleeper.jobs.process import is_alive, this_process
from sleeper.jobs.queue import LOCAL_QUEUES, ExternalQueue, QueueName, QueueSettings
from sleeper.local.file_requests import LocalFileRequests
from sleeper.local.folder import (
    CodeFolder,
    InstanceFolder,
    TablePropertyFiles,
    create_instance_folder,
    open_instance_folder,
)
from sleeper.local.holds import HoldFiles
from sleeper.local.query_tracker import LocalQueryTracker
from sleeper.local.queue import (
    LocalDeadLetters,
    LocalQueue,
    LocalResultsQueue,
    release_dead_receivers,
)
from sleeper.local.reserve import Reserve
from sleeper.local.state_formats import (
    AcceptUpgrade,
    check_state_formats,
    record_current_format,
)
from sleeper.local.state_store import install_state, open_state_store
from sleeper.local.table_index import LocalTableIndex
from sleeper.local.trackers import LocalJobTracker, LocalTaskTracker, record_dead_tasks
from sleeper.properties.deployed import DEPLOYED_QUEUES
from sleeper.properties.instance import (
    COMPACTION_RETRIES_MAX,
    LOCAL_POLL_MILLISECONDS,
    QUEUE_RECEIVES_MAX,
    SPILL_DIRECTORY,
)
from sleeper.properties.values import InstanceProperties
from sleeper.runs.retry_policy import VISIBILITY_SECONDS
from sleeper.statestore.open_states import OpenStates
from sleeper.statestore.store import StateStore
from sleeper.storage.bucket import Bucket, is_s3_url
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.location import DataRoot
from sleeper.storage.patterns import find_matches, is_pattern
from sleeper.storage.read_only_root import ReadOnlyRoot
from sleeper.storage.sources import LOCAL_SCHEME, any_s3_source, readable_buckets
from sleeper.system_ports import SystemPorts, open_enricher
from sleeper.systems import systems
from sleeper.tables import TableId
from sleeper.temporary import temporary_folder
from sleeper.user_code.loading import UserCode
from sleeper.user_code.registry import Registry

if TYPE_CHECKING:
    from sleeper.query.engine import QueryEngine

_SPILL_FOLDER = "spill"
_CODE_FOLDER = "code"
_UNPACKED_FOLDER = "unpacked"
_RESULTS_FOLDER = "query-results"
_EXPORTS_FOLDER = "exports"
_IMPORTS_FOLDER = "bulk_import"
_NEVER_MS = 2**63 - 1


def create_local_instance(
    folder: Path, instance_id: str | None = None, values: Mapping[str, str] | None = None
) -> str:
    """Creates an instance in a folder that is new or empty; returns its id.

    By default the id is the folder's name.
    """
    instance_id = instance_id or _default_id(folder.resolve().name)
    local = create_instance_folder(folder, instance_id, values)
    # A process without write access cannot create these tables later.
    LocalFileRequests(local.database)
    LocalQueryTracker(local.database)
    record_current_format(local.database)
    local.close()
    return instance_id


def _default_id(folder_name: str) -> str:
    letters = (c if c.isascii() and c.isalnum() else "-" for c in folder_name.lower())
    return "".join(letters).strip("-")[:20].strip("-") or "sleeper"


def open_local_instance(
    folder: Path,
    clock: Clock = system_clock,
    open_external_queue: Callable[[str], ExternalQueue] | None = None,
    read_only: bool = False,
    upgrade: bool = False,
    accept_upgrade: AcceptUpgrade | None = None,
) -> Instance:
    """Opens the instance of a folder. NotFoundError if it holds none.

    States of an older format are converted with `upgrade`, or if `accept_upgrade` returns true;
    InvalidRequestError otherwise. A `read_only` opening converts none.

    `open_external_queue` opens queues of SQS, which a local instance has none of. A `read_only`
    instance changes nothing in the folder, and refuses changes with InvalidRequestError.
    """
    local = open_instance_folder(folder, read_only)
    database = local.database
    try:
        if not read_only:
            check_state_formats(local, upgrade, accept_upgrade)
    except BaseException:
        local.close()
        raise
    properties = local.properties()
    open_root = ReadOnlyRoot if read_only else DataRoot
    root = open_root(local.folder)
    holds = HoldFiles(local.folder, read_only)
    states = _open_states(local, holds, root, clock)
    ports = SystemPorts(
        {each.name: each.local_port for each in systems() if each.local_port is not None},
        lambda open_port: open_port(local.folder, clock, read_only),
    )
    enricher = open_enricher(clock)
    poll_seconds = properties.get(LOCAL_POLL_MILLISECONDS) / 1000

    @functools.cache
    def query_engine() -> "QueryEngine":
        from sleeper.query.engine import QueryEngine, query_settings

        return QueryEngine(
            query_settings(local.properties(), _spill_folder(local), root.buckets), clock
        )

    def close() -> None:
        enricher.close()
        states.close()
        holds.close()
        ports.close()
        local.close()

    return Instance(
        where=str(local.folder),
        properties=local.properties,
        change_properties=local.set_properties,
        tables=Tables(
            index=LocalTableIndex(database),
            properties=TablePropertyFiles(local),
            state=states.get,
            create=local.make_table_folder,
            install=lambda table_id, state: _install_state(local, table_id, state),
            delete=lambda table_id: _remove_table(local, states, holds, table_id),
            abandoned=local.unlisted_table_ids,
            # Each table has a log file of its own.
            announce_commits=lambda _: nullcontext(lambda: None),
        ),
        jobs=Jobs(
            tracker=LocalJobTracker(database),
            tasks=LocalTaskTracker(database),
            has_remote_tasks=False,
            queues=tuple(LOCAL_QUEUES),
            queue=lambda name: LocalQueue(
                database, name.value, _queue_settings(name, local.properties()), clock, poll_seconds
            ),
            dead_letters=lambda name: LocalDeadLetters(
                database, name.value, _queue_settings(name, local.properties()), clock
            ),
            external_queue=open_external_queue or _no_external_queue,
            file_requests=functools.cache(lambda: LocalFileRequests(database)),
            launcher=None,
            spark_platform=None,
        ),
        storage=Storage(
            root=root,
            exports=lambda: open_root(local.folder / _EXPORTS_FOLDER),
            imports=lambda: open_root(local.folder / _IMPORTS_FOLDER),
            sources=LocalSources(root, local.properties),
            spill_folder=lambda: _spill_folder(local),
            shared_folder=lambda name: _working_folder(local, name),
            find_old_versions=lambda: None,
            released_reserve=Reserve(local.folder, read_only).released,
        ),
        queries=Queries(
            engine=query_engine,
            tracker=functools.cache(lambda: LocalQueryTracker(database, clock)),
            results_root=functools.cache(lambda bucket: open_root(_results_folder(local, bucket))),
            results_queue=lambda url: LocalResultsQueue(database, url or "default", clock),
            send_frame=None,
        ),
        background=BackgroundWork(
            local.folder,
            lambda: _recover(local, clock),
            lambda: local.database.vacuum() and ports.vacuum(),
        ),
        switch_schedules=None,
        code=UserCode(
            Registry(CodeFolder(local.folder / _CODE_FOLDER, read_only)),
            _unpacked_folder(local),
        ),
        read_secret=None,
        open_enrichment=enricher.open,
        systems=ports,
        clock=clock,
        close=close,
        read_only=read_only,
    )


def _no_external_queue(name: str) -> ExternalQueue:
    raise InvalidRequestError(f"queue {name}: this process has no client of SQS")


def _recover(local: InstanceFolder, clock: Clock) -> int:
    """Returns messages of dead processes, ends their runs, and deletes their spill folders."""
    local.database.check_writable()
    record_dead_tasks(local.database)
    for spilled in _spill_root(local).glob("*@*"):
        if not is_alive(spilled.name):
            shutil.rmtree(spilled, ignore_errors=True)
    return release_dead_receivers(local.database, clock)


def _install_state(local: InstanceFolder, table_id: TableId, state: Path) -> None:
    local.database.check_writable()
    install_state(local.state_path(table_id), state)


def _remove_table(
    local: InstanceFolder, states: OpenStates, holds: HoldFiles, table_id: TableId
) -> None:
    states.forget(table_id)
    holds.of_table(table_id).forget(_NEVER_MS)
    local.remove_table_files(table_id)


def _spill_folder(local: InstanceFolder) -> Path:
    folder = _spill_root(local) / this_process()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)  # it holds rows and may be in a shared folder
    except OSError as error:
        raise UnavailableError(
            f"cannot create the spill folder {folder}: {error.strerror}"
        ) from error
    _delete_at_exit(folder)
    return folder


@functools.cache
def _delete_at_exit(folder: Path) -> None:
    """Deletes the folder at the process's end. `_recover` deletes those of killed processes."""

    def delete() -> None:
        if folder.name == this_process():  # a fork runs this too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(delete)


def _results_folder(local: InstanceFolder, bucket: str | None) -> Path:
    if bucket is not None:
        raise InvalidRequestError(
            f"results cannot go to bucket {bucket!r}: a local instance writes them to its folder"
        )
    return local.folder / _RESULTS_FOLDER


def _spill_root(local: InstanceFolder) -> Path:
    return _working_folder(local, _SPILL_FOLDER)


def _working_folder(local: InstanceFolder, name: str) -> Path:
    chosen = local.properties().get(SPILL_DIRECTORY)
    if chosen:
        return temporary_folder(name, Path(chosen))
    if not local.database.read_only and os.access(local.folder, os.W_OK):
        return local.folder / name
    return temporary_folder(name)


def _unpacked_folder(local: InstanceFolder) -> Path:
    folder = local.folder / _CODE_FOLDER
    if local.database.read_only:
        folder = _working_folder(local, _CODE_FOLDER)
    return folder / _UNPACKED_FOLDER


def _queue_settings(name: QueueName, properties: InstanceProperties) -> QueueSettings:
    receives = COMPACTION_RETRIES_MAX if name is QueueName.COMPACTION else QUEUE_RECEIVES_MAX
    # One more receive of a query records that the others failed.
    more = 1 if name in {QueueName.QUERY, QueueName.LEAF_QUERY} else 0
    return QueueSettings(
        properties.get(VISIBILITY_SECONDS[name]),
        properties.get(receives) + more,
        DEPLOYED_QUEUES[name.value].fifo,
    )


def _open_states(
    local: InstanceFolder, holds: HoldFiles, root: DataRoot, clock: Clock
) -> OpenStates:
    read_only = local.database.read_only

    def open_state(table_id: TableId) -> StateStore:
        local.check_state_exists(table_id)
        path, own = local.state_path(table_id), holds.of_table(table_id)
        return open_state_store(path, clock, root.store, table_id, read_only, own)

    # Another process may have deleted a table and restored it, under the same id.
    return OpenStates(open_state, lambda table_id: _find_file(local.state_path(table_id)))


def _find_file(path: Path) -> tuple[int, int] | None:
    """Returns the device and number of the file, which its readers keep open."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class LocalSources:
    """Implements `sleeper.instance.Sources`. It loads the file readers on first use."""

    root: DataRoot
    properties: Callable[[], InstanceProperties]

    def find(self, path: str) -> Sequence[tuple[str, int]]:
        from sleeper.datafiles.sources.files import find_source_files

        return [
            (str(file.resolve()), file.stat().st_size)
            if isinstance(file, Path)
            else (str(file), file.size() or 0)
            for file in find_source_files([self.open(path)])
        ]

    def open(self, name: str) -> SourceFile:
        if is_s3_url(name):
            return any_s3_source(name)
        return Path(name.removeprefix(LOCAL_SCHEME))

    def job_name(self, path: str) -> str:
        return path if is_s3_url(path) else str(Path(path).resolve())

    def check_submitted(self, path: str) -> None:
        if is_s3_url(path):
            return
        if is_pattern(path) and not find_matches(path):
            raise InvalidRequestError(f"no file matches {path}")
        if not is_pattern(path) and not Path(path).exists():
            raise InvalidRequestError(f"file {path} does not exist")

    def check_message(self, names: Iterable[str]) -> None:
        pass

    def buckets(self) -> tuple[Bucket, ...]:
        return readable_buckets(self.root, self.properties())
