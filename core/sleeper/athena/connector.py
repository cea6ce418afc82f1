"""What a connector needs of its instance, and where each request is answered."""

from collections.abc import Callable
from dataclasses import dataclass

from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.storage.location import DataRoot
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableRef


@dataclass(frozen=True, slots=True)
class SpillBucket:
    """Where blocks are spilled: a bucket's name, and the place that it is."""

    name: str
    root: DataRoot


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """Properties `sleeper.athena.*`. A split reads about `split_bytes` of data files.

    It is a part of one leaf, or at most so many leaves, each of which may be many files.
    """

    hold_seconds: int = 3600
    split_bytes: int = 512 * 1024**2
    sketched_files_max: int = 50
    splits_per_page: int = 4000
    leaves_per_split: int = 100
    shows_raw: bool = True


@dataclass(frozen=True, slots=True)
class Connector:
    """The tables of an instance, and what reads them. Keep one for the process's life."""

    tables: TableIndex
    open_table: Callable[[TableRef], QueryTable]
    engine: Callable[[], QueryEngine]
    spill: SpillBucket
    settings: ConnectorSettings = ConnectorSettings()
