"""The state that the queries of a process share: a session, its memory, caches, settings."""

import os
import threading
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sleeper.clock import Clock, system_clock
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.request import MergeRequest
from sleeper.datafiles.merge.steps import TableIterators
from sleeper.datafiles.pages.reader import PageReader
from sleeper.datafiles.remote.extracts import Extractor
from sleeper.datafiles.sidecars.checksum import VerifiedFiles
from sleeper.errors import DataError, UnavailableError
from sleeper.files import DataFile
from sleeper.processing.restriction import NO_RESTRICTION, Restriction, restrict_version
from sleeper.properties import instance as engine_properties
from sleeper.properties.values import InstanceProperties
from sleeper.query.key_filters import KeyFilterCache
from sleeper.query.newest_versions import NewestVersions
from sleeper.query.sharing import CallSharing
from sleeper.schema.model import Schema
from sleeper.statestore.store import StateStore
from sleeper.storage.bucket import Bucket, Credentials
from sleeper.storage.location import DataRoot

if TYPE_CHECKING:
    from datafusion import SessionContext


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A table open for queries. `restriction` limits every query to what its caller may see."""

    name: str
    store: StateStore
    root: DataRoot
    iterators: TableIterators = field(default_factory=TableIterators)
    restriction: Restriction = NO_RESTRICTION

    def restriction_at(self, schema: Schema) -> Restriction:
        """Returns the restriction for rows of an older schema."""
        if self.restriction == NO_RESTRICTION:
            return self.restriction
        with self.store.reading() as state:
            return restrict_version(self.restriction, schema, state.newest_schema)


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The limits of queries (properties `sleeper.query.*`). A maximum of 0 means no limit.

    With `verifies_checksums` queries verify the checksums of data files before they use rows.
    Without `reads_pages` the engine reads all files.
    """

    engine: EngineSettings
    hold_seconds: int = 3600
    rows_max: int = 0
    seconds_max: int = 0
    bytes_max: int = 0
    filter_cache_bytes: int = 256 * 1024**2
    footer_cache_bytes: int = 50 * 1024**2
    verifies_checksums: bool = False
    reads_pages: bool = True


def query_settings(
    properties: InstanceProperties, spill_folder: Path, buckets: tuple[Bucket, ...] = ()
) -> QuerySettings:
    """Returns the settings of an instance.

    `spill_folder` is an existing local folder, `buckets` are the buckets of the instance's data.
    """
    engine = EngineSettings(
        spill_folder=spill_folder,
        memory_bytes=properties.get(engine_properties.QUERY_MEMORY_BYTES),
        merge_files_max=properties.get(engine_properties.MERGE_FILES_MAX),
        threads=properties.get(engine_properties.ENGINE_THREADS) or os.cpu_count() or 1,
        buckets=buckets,
        key_cache_bytes=properties.get(engine_properties.DELETED_KEYS_CACHE_BYTES),
    )
    return QuerySettings(
        engine,
        hold_seconds=properties.get(engine_properties.QUERY_HOLD_SECONDS),
        rows_max=properties.get(engine_properties.QUERY_ROWS_MAX),
        seconds_max=properties.get(engine_properties.QUERY_SECONDS_MAX),
        bytes_max=properties.get(engine_properties.QUERY_BYTES_MAX),
        filter_cache_bytes=properties.get(engine_properties.QUERY_CACHE_BYTES),
        footer_cache_bytes=properties.get(engine_properties.QUERY_FOOTER_CACHE_BYTES),
        verifies_checksums=properties.get(engine_properties.QUERY_CHECKSUMS_VERIFIED),
    )


@dataclass(slots=True)
class QueryEngine:
    """The shared engine of a process. Safe for threads; a process keeps one.

    It caches the newest versions of tables, the footers and key filters of files, and deleted keys,
    so that a lookup does not read them again.
    All queries share one memory pool.

    Modules that import DataFusion are imported by the first query that needs them: importing
    it takes longer than most lookups.
    """

    settings: QuerySettings
    clock: Clock = system_clock
    key_filters: KeyFilterCache = field(init=False)
    newest_versions: NewestVersions = field(default_factory=NewestVersions)
    sharing: CallSharing = field(default_factory=CallSharing)
    extractor: Extractor = field(init=False)
    verified: VerifiedFiles = field(init=False)
    key_files: KeyFileCache = field(init=False)
    pages: PageReader = field(init=False)
    _session: "SessionContext | None" = None
    _keys: list[Credentials | None] = field(default_factory=list)
    _marker: Path = field(default_factory=Path)
    _opening: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        settings = self.settings
        self.key_filters = KeyFilterCache(settings.filter_cache_bytes)
        self.extractor = Extractor(
            settings.engine.spill_folder, self._footer_cache_bytes, settings.verifies_checksums
        )
        self.verified = VerifiedFiles()
        self.pages = PageReader(
            self._footer_cache_bytes,
            settings.engine.memory_bytes,
            settings.engine.threads,
            settings.engine.merge_files_max,
        )
        self.key_files = KeyFileCache(settings.engine.key_cache_bytes)

    @property
    def session(self) -> "SessionContext":
        """The session of key queries. A new one replaces it if its spill folder was deleted."""
        from sleeper.datafiles.engine.session import (
            limit_footer_cache,
            open_session,
            register_buckets,
        )

        buckets = self.settings.engine.buckets
        keys = [each.credentials.current() if each.credentials else None for each in buckets]
        with self._opening:
            if self._session is None or not self._marker.exists():
                session = open_session(self.settings.engine)
                limit_footer_cache(session, self._footer_cache_bytes)
                marker = self._new_marker()
                weakref.finalize(session, marker.unlink, missing_ok=True)
                self._session, self._marker = session, marker
            elif keys != self._keys:
                register_buckets(self._session, buckets)
            self._keys = keys
            return self._session

    def merge(self, request: MergeRequest) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a merge by DataFusion, in key order, in batches of its types."""
        from sleeper.datafiles.merge.plan import merge

        yield from merge(request, self.settings.engine, self.session)

    def find_damage(
        self, schema: Schema, files: Sequence[DataFile], root: DataRoot
    ) -> DataError | None:
        """Returns the error of the first file that is missing or damaged, None if none is."""
        from sleeper.datafiles.verification import find_damage

        return find_damage(schema, files, root, self.settings.engine)

    def _new_marker(self) -> Path:
        """Creates an empty file in the spill folder, which disappears with the folder.

        Then the session's own folder inside has disappeared too, and the session cannot spill
        again. Closing the session deletes both.
        """
        marker = self.settings.engine.new_spill_path(f"session-{uuid.uuid4().hex}")
        try:
            marker.touch()
        except OSError as error:
            raise UnavailableError(f"cannot write {marker}: {error.strerror}") from error
        return marker

    @property
    def _footer_cache_bytes(self) -> int:
        """Half of the setting, as the engine and the other readers cache different parts."""
        return self.settings.footer_cache_bytes // 2
