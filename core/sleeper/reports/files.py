"""The report on data files."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice

from sleeper.files.data_file import DataFile, FileReference
from sleeper.partitions.json import key_value_to_json
from sleeper.reports.output import Column, ColumnKind, Listing, Value, counted, note_of_more
from sleeper.schema.model import Key
from sleeper.statestore.store import StateStore

_COLUMNS = (
    Column("table", "Table"),
    Column("file", "File", ColumnKind.PATH),
    Column("partitions", "Partitions"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("smallest_key", "Smallest key"),
    Column("largest_key", "Largest key"),
    Column("smallest_number", "From", ColumnKind.COUNT),
    Column("largest_number", "To", ColumnKind.COUNT),
    Column("jobs", "Compaction job"),
)


@dataclass(frozen=True, slots=True)
class ReportedFile:
    """A data file and the references to it."""

    file: DataFile
    references: tuple[FileReference, ...]


@dataclass(frozen=True, slots=True)
class FilesReport:
    """The first of a table's files, oldest first, and how many there are."""

    table_name: str
    files: tuple[ReportedFile, ...]
    total: int

    def listing(self) -> Listing:
        """A row for each file. `From` and `To` are the transactions whose rows it holds."""
        return Listing(
            name="files",
            summary=f"table {self.table_name}: {counted(self.total, 'file')}",
            columns=_COLUMNS,
            rows=tuple(self._row(each) for each in self.files),
            note=note_of_more(self.total, len(self.files), "file"),
        )

    def _row(self, reported: ReportedFile) -> tuple[Value, ...]:
        file = reported.file
        return (
            self.table_name,
            file.path,
            tuple(r.partition_id for r in reported.references),
            file.rows,
            file.bytes,
            _key(file.smallest_key),
            _key(file.largest_key),
            file.smallest_number,
            file.largest_number,
            tuple(sorted({r.job_id for r in reported.references if r.job_id})),
        )


def gather_files(store: StateStore, table_name: str, limit: int) -> FilesReport:
    """Reads the newest version of the table's state."""
    with store.reading() as state:
        files = list(islice(state.files.all(), limit))
        references: defaultdict[str, list[FileReference]] = defaultdict(list)
        for reference in state.files.references_to([f.path for f in files]):
            references[reference.path].append(reference)
        total = state.files.totals().files
    reported = tuple(ReportedFile(f, tuple(references[f.path])) for f in files)
    return FilesReport(table_name, reported, total)


def _key(key: Key) -> tuple[int | str, ...]:
    return tuple(key_value_to_json(value) for value in key)
