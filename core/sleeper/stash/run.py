"""Makes a stash in this process (docs/stash.md)."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
)
from sleeper.instance import Instance, OpenTable
from sleeper.properties.instance import ID
from sleeper.query.engine import QueryEngine
from sleeper.stash.cut import TableCut, hold_at_one_moment, hold_newest
from sleeper.stash.layout import (
    SUCCESS,
    TABLES,
    StashedTable,
    Success,
    check_directories,
    format_tables,
    root_name,
    root_time_ms,
    table_directory,
)
from sleeper.stash.piece import Written, plan_table, write_piece
from sleeper.stash.place import StashPlace, open_place_to_write
from sleeper.stash.record import claim_root
from sleeper.storage.location import UNFINISHED_SUFFIX, DataRoot

logger = logging.getLogger(__name__)

PIECE_BYTES = 128 * 1024**2
"""The default size of the data files of a piece."""

# Names are whole seconds, so the next name is at most a second away.
_CLAIMS = 50
_SECONDS_BETWEEN_CLAIMS = 0.05

OnStage = Callable[[str], None]
"""Receives the table that is being copied."""


@dataclass(frozen=True, slots=True)
class StashResult:
    """A complete stash: its root below the destination, and its tables."""

    id: str
    destination: str
    root: str
    tables: tuple[StashedTable, ...]


def run_stash(
    instance: Instance,
    destination: str,
    tables: Sequence[str] = (),
    atomic: bool = False,
    piece_bytes: int = PIECE_BYTES,
    on_stage: OnStage = lambda _: None,
) -> StashResult:
    """Makes a stash of the tables, by default all, and waits for its end.

    Each table is copied at the newest version when its turn comes. If `atomic`, all are copied at
    the versions that they had at one moment. InvalidRequestError for an unusable destination or two
    tables that would share a directory, NotFoundError for an unknown table.
    """
    names = list(dict.fromkeys(tables))
    refs = [instance.tables.index.find(n) for n in names] or list(instance.tables.index.list())
    check_directories(ref.name for ref in refs)
    place = open_place_to_write(destination, instance.storage.root)
    _check_outside(place, instance)
    name = _claim_root(instance, place)
    started_ms = root_time_ms(name)
    run = _Run(instance, place, name, f"{instance.properties().get(ID)}-{name}", piece_bytes)
    opened = [OpenTable(instance, ref) for ref in refs]
    logger.info("started stash", extra={"job_id": run.id})
    if atomic:
        done = run.copy_at_one_moment(opened, on_stage)
    else:
        done = run.copy_each(opened, on_stage, may_vanish=not names)
    run.finish(done, started_ms)
    logger.info("completed stash", extra={"job_id": run.id})
    return StashResult(run.id, destination, name, tuple(done))


def _check_outside(place: StashPlace, instance: Instance) -> None:
    own, root = instance.storage.root, place.root
    if own.url_of("") == root.url_of("") or root.url_of("").startswith(
        own.url_of("").rstrip("/") + "/"
    ):
        raise InvalidRequestError(f"{place.name} is inside the instance {own.url_of('')}")


def _claim_root(instance: Instance, place: StashPlace) -> str:
    """Claims the name of a root, and returns it. May wait for the next second."""
    for _ in range(_CLAIMS):
        name = root_name(instance.clock())
        is_free = name not in place.root.list_folders("")
        if is_free and claim_root(instance.storage.root, place.root.url_of(""), name):
            return name
        time.sleep(_SECONDS_BETWEEN_CLAIMS)
    raise ConflictError(f"{place.name} already has a stash that started in the same second: {name}")


def _is_deleted(table: OpenTable) -> bool:
    try:
        table.check_active()
    except (NotFoundError, StateMovedOnError):
        return True
    return False


@dataclass(frozen=True, slots=True)
class _Run:
    instance: Instance
    place: StashPlace
    name: str
    id: str
    piece_bytes: int
    engine: QueryEngine = field(init=False)

    def __post_init__(self) -> None:
        shared = self.instance.queries.engine()
        # The limits of queries do not apply to whole tables.
        settings = replace(shared.settings, rows_max=0, seconds_max=0, bytes_max=0)
        object.__setattr__(self, "engine", QueryEngine(settings, shared.clock))

    def copy_at_one_moment(
        self, tables: Sequence[OpenTable], on_stage: OnStage
    ) -> list[StashedTable]:
        """Copies the tables at the versions that they had at one moment."""
        done = []
        with hold_at_one_moment(tables, f"stash {self.id}") as cuts:
            for position, cut in enumerate(cuts, 1):
                on_stage(f"{cut.table.ref.name} ({position} of {len(tables)})")
                done.append(self.copy(cut))
        return done

    def copy_each(
        self, tables: Sequence[OpenTable], on_stage: OnStage, may_vanish: bool
    ) -> list[StashedTable]:
        """Copies each table at its newest version. Leaves out tables that are deleted meanwhile."""
        done = []
        for position, table in enumerate(tables, 1):
            on_stage(f"{table.ref.name} ({position} of {len(tables)})")
            try:
                with hold_newest(table, f"stash {self.id}") as cut:
                    done.append(self.copy(cut))
            except (NotFoundError, StateMovedOnError, DataError):
                if not may_vanish or not _is_deleted(table):
                    raise
                directory = f"{self.name}/{table_directory(table.ref.name)}"
                self.place.root.delete([o.path for o in self.place.root.list_objects(directory)])
        return done

    def copy(self, cut: TableCut) -> StashedTable:
        """Writes the files of a table."""
        table = cut.table
        with table.state.reading(cut.version) as state:
            schema, time_ms = state.schema, state.version_time_ms
        planned = plan_table(table, cut.version, self.engine, self.piece_bytes)
        folder = f"{self.name}/{table_directory(table.ref.name)}"
        written: list[Written] = []
        if planned is not None:
            threads = ThreadPoolExecutor(self.engine.settings.engine.threads, "stash")
            try:
                written = list(
                    threads.map(
                        lambda piece: write_piece(
                            planned, piece, self.engine, self.place.root, folder
                        ),
                        planned.pieces,
                    )
                )
            finally:
                # The first failure cancels the others.
                threads.shutdown(cancel_futures=True)
        return StashedTable(
            table.ref.name,
            table.ref.id,
            cut.version,
            time_ms,
            sum(each.rows for each in written),
            sum(1 for each in written if each.rows),
            sum(each.bytes for each in written),
            schema,
        )

    def finish(self, tables: Sequence[StashedTable], started_ms: int) -> None:
        """Completes the root: `_TABLES`, then `_SUCCESS`, then `_LATEST` of the destination."""
        root = self.place.root
        _delete_unfinished(root, self.name)
        _put(root, f"{self.name}/{TABLES}", format_tables(tables))
        # Clocks of several machines differ, and this root must be the one that was completed last.
        others = [each.success.completed_ms + 1 for each in self.place.roots() if each.success]
        completed_ms = max(self.instance.clock(), started_ms, *others)
        success = Success(started_ms, completed_ms, self.id)
        _put(root, f"{self.name}/{SUCCESS}", success.to_bytes())
        self.place.record_latest()


def _delete_unfinished(root: DataRoot, name: str) -> None:
    """Deletes unfinished files of killed processes."""
    for each in root.list_objects(name):
        if each.path.endswith(UNFINISHED_SUFFIX):
            root.delete([each.path])


def _put(root: DataRoot, path: str, content: bytes) -> None:
    with root.replacing(path) as sink:
        sink.write(content)
