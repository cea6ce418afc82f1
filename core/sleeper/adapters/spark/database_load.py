"""Loads databases with Spark: stages the rows as files, then imports the files in one commit.

The staged files are deleted at the end. Those of a killed process are in its spill folder, which
the next process deletes, or in the bucket of imports, whose objects expire.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from sleeper.adapters.column_mapping import ColumnMapping
from sleeper.adapters.definition import DatabaseSource
from sleeper.adapters.run import OpenSpark, SparkLoad
from sleeper.adapters.spark.jdbc import StagedRows, check_database, stage_database
from sleeper.bulk_import.run import OnStage, ignore_stage, run_bulk_import
from sleeper.bulk_import.service import bulk_import_table
from sleeper.errors import SleeperError
from sleeper.ingest.run import IngestResult
from sleeper.instance import Instance, OpenTable
from sleeper.schema.model import Schema
from sleeper.spark.cluster import SparkCluster
from sleeper.spark.jdbc_driver import jar_settings
from sleeper.spark.session import open_submitted_session, start_session, stop_session
from sleeper.spark.settings import SparkSettings
from sleeper.storage.bucket_folder import SourceFile, s3_file
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)
_APP_NAME = "sleeper adapter"
_STAGED = "staged"
OpenSession = Callable[[], SparkSession]


@dataclass(frozen=True, slots=True)
class SparkDatabaseReader:
    """Implements `sleeper.adapters.run.SparkDatabases`. The session opens on first use."""

    open_session: OpenSession
    on_stage: OnStage = ignore_stage

    def check(self, source: DatabaseSource, password: str | None, schema: Schema) -> None:
        """Implements the port."""
        check_database(self.open_session(), source, password, schema)

    def load(
        self,
        table: OpenTable,
        source: DatabaseSource,
        password: str | None,
        job_id: str,
        request: str,
        mapping: ColumnMapping,
    ) -> SparkLoad:
        """Implements the port."""
        target = bulk_import_table(table)
        staging = _Staging.open(table.instance, job_id)
        staged: list[StagedRows] = []

        def stage() -> Sequence[SourceFile]:
            session = self.open_session()
            rows = stage_database(
                session, source, password, target.schema, staging.root, staging.folder, mapping
            )
            staged.append(rows)
            return [staging.file(each.path) for each in rows.files]

        try:
            result = run_bulk_import(
                target,
                job_id,
                stage,
                request,
                lambda: SparkCluster(self.open_session()),
                self.on_stage,
            )
        finally:
            staging.delete()
        loaded = IngestResult(
            job_id,
            result.rows,
            result.files,
            result.number,
            result.done_before,
            bytes=result.bytes,
        )
        return SparkLoad(loaded, next((rows.note for rows in staged), None))


@dataclass(frozen=True, slots=True)
class _Staging:
    """The folder of one load's staged files, which the tasks of its cluster can reach."""

    root: DataRoot
    folder: str

    @classmethod
    def open(cls, instance: Instance, job_id: str) -> "_Staging":
        """Returns a new folder."""
        imports = instance.storage.imports()
        root = imports if imports.buckets else DataRoot(instance.storage.spill_folder() / _STAGED)
        return cls(root, f"{_STAGED}/{job_id}-{uuid.uuid4().hex[:12]}")

    def file(self, path: str) -> SourceFile:
        """Returns a staged file as an input of an import."""
        url = self.root.url_of(path)
        return s3_file(url, self.root.buckets) if self.root.buckets else Path(url)

    def delete(self) -> None:
        """Deletes the files. Logs an error, which must not hide the load's own result."""
        try:
            self.root.delete([each.path for each in self.root.list_objects(self.folder)])
        except SleeperError:
            logger.warning("could not delete the staged files in %s", self.folder, exc_info=True)


@contextmanager
def local_databases(
    instance: Instance, settings: SparkSettings, on_stage: OnStage | None = None
) -> Iterator[OpenSpark]:
    """Yields a function that reads databases with a session of Spark, started on first use."""
    with ExitStack() as stack:

        @cache
        def start() -> SparkSession:
            folder = instance.storage.spill_folder() / "spark"
            spark = replace(settings, conf={**jar_settings(), **settings.conf})
            session = start_session(_APP_NAME, spark, folder, [instance.storage.root])
            return stack.enter_context(session)

        yield lambda: SparkDatabaseReader(start, on_stage or ignore_stage)


@contextmanager
def submitted_databases() -> Iterator[OpenSpark]:
    """Yields a function that reads databases with the session of spark-submit."""
    with ExitStack() as stack:

        @cache
        def start() -> SparkSession:
            session = open_submitted_session(_APP_NAME)
            stack.callback(stop_session, session)
            return session

        yield lambda: SparkDatabaseReader(start)
