"""A table's schema, initial partitions, filters, aggregations, iterator, and time."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member
from sleeper.partitions.partition import Partition, find_subtree_fault
from sleeper.partitions.region import whole_region
from sleeper.processing.model import Processing, check_table_processing
from sleeper.processing.text import (
    iterator_call,
    parse_aggregations,
    parse_filters,
    processing_from_json,
    processing_to_json,
)
from sleeper.schema.defaults import check_default
from sleeper.schema.latest_rows import make_latest
from sleeper.schema.model import Schema, schema_from_json, schema_to_json
from sleeper.statestore.fold import DAY_MS, SNAPSHOT_TABLE, Fold
from sleeper.statestore.fold_tables import create_keyed_tables
from sleeper.statestore.rows import insert_partition
from sleeper.statestore.transactions.compaction_jobs import forget_job
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)

ORPHAN_AGE_DAYS = 14


@dataclass(frozen=True, slots=True)
class InitialiseTable(Transaction):
    """Sets a table's schema and partitions (parents first). Always number 1.

    `processing_json` holds filters, aggregations and an iterator. With `rows` "latest", the table
    shows the newest of rows with equal keys only; `latest_by` orders them before their numbers.
    The `table_type` "snapshot" is that of a table that each load replaces.
    """

    kind: ClassVar[str] = "initialise_table"
    subject: ClassVar[Subject] = Subject.TABLE
    schema_json: Annotated[str, Member("schema")]
    partitions: Annotated[tuple[Partition, ...], Member(last=True)]
    processing_json: Annotated[str, Member("processing")] = "{}"
    orphan_age_days: int = ORPHAN_AGE_DAYS
    rows: Annotated[str | None, Member(optional=True)] = None
    latest_by: Annotated[str | None, Member(optional=True)] = None
    table_type: Annotated[str | None, Member(optional=True)] = None

    def validate(self, fold: Fold) -> Verdict:
        if fold.initialised:
            return refused("the table is already initialised")
        if self.table_type not in (None, SNAPSHOT_TABLE):
            return refused(f"table type {self.table_type!r} is unknown")
        try:
            schema = self.schema
            for field in schema.fields:
                check_default(field)
            check_table_processing(processing_from_json(self.processing_json), schema)
        except InvalidRequestError as error:
            return refused(str(error))
        if not self.partitions:
            return refused("a table needs a root partition")
        root, *below = self.partitions
        if root.parent_id is not None or root.region != whole_region(schema):
            return refused(
                f"partition {root.id} is first but is not the root of the whole key space"
            )
        if root.is_leaf == bool(below):
            return refused(f"partition {root.id} has a wrong leaf mark: {root.is_leaf}")
        fault = find_subtree_fault(root.id, root.region, below, levels_max=None)
        return refused(fault) if fault else APPLY

    @property
    def schema(self) -> Schema:
        """The schema with the choice of rows. InvalidRequestError if they do not fit."""
        schema = schema_from_json(self.schema_json)
        return replace(schema, latest=make_latest(self.rows, self.latest_by))

    def apply(self, fold: Fold) -> None:
        fold.dimensions = len(self.schema.row_keys)
        fold.table_type = self.table_type
        fold.orphan_age_ms = self.orphan_age_days * DAY_MS
        create_keyed_tables(fold.connection, fold.dimensions)
        schema_json = self.schema_json if self.rows is None else schema_to_json(self.schema)
        fold.run("INSERT INTO schema_versions VALUES (1, ?)", (schema_json,))
        fold.run("INSERT INTO processing_versions VALUES (1, ?)", (self.processing_json,))
        keys: dict[str, int] = {}
        for partition in self.partitions:
            parent = None if partition.parent_id is None else keys[partition.parent_id]
            keys[partition.id] = insert_partition(fold, partition, parent)


@dataclass(frozen=True, slots=True)
class ChangeProcessing(Transaction):
    """Sets the members that are not None; an empty text removes one.

    The iterator is a registered name, which the writer has verified. The processing applies to
    versions from this number on. Running compaction jobs lose their files, because they apply the
    previous processing.
    """

    kind: ClassVar[str] = "change_processing"
    subject: ClassVar[Subject] = Subject.TABLE
    json_version: ClassVar[int] = 2
    filters: Annotated[str | None, Member(optional=True)] = None
    aggregations: Annotated[str | None, Member(optional=True)] = None
    iterator: Annotated[str | None, Member(optional=True)] = None
    iterator_config: Annotated[str | None, Member(optional=True)] = None

    def validate(self, fold: Fold) -> Verdict:
        before = _current_processing(fold)
        try:
            after = self.after(before)
            (schema,) = fold.row("SELECT json FROM schema_versions ORDER BY version DESC LIMIT 1")
            check_table_processing(after, schema_from_json(schema))
        except InvalidRequestError as error:
            return refused(str(error))
        return already_done("the processing is unchanged") if after == before else APPLY

    def apply(self, fold: Fold) -> None:
        after = processing_to_json(self.after(_current_processing(fold)))
        fold.run("INSERT INTO processing_versions VALUES (?, ?)", (fold.next_number, after))
        for (job_id,) in fold.rows("SELECT id FROM jobs"):
            forget_job(fold, job_id)

    def after(self, before: Processing) -> Processing:
        """Returns the changed processing. InvalidRequestError if it is invalid."""
        called = before.iterator
        name = (called.name if called else "") if self.iterator is None else self.iterator
        config = self.iterator_config
        if config is None:
            config = called.config if called and name else ""
        return Processing(
            before.filters if self.filters is None else parse_filters(self.filters),
            before.aggregations
            if self.aggregations is None
            else parse_aggregations(self.aggregations),
            iterator_call(name, config),
        )


@dataclass(frozen=True, slots=True)
class AcceptTime(Transaction):
    """Accepts a jump of many days of the log's time.

    `time_ms` is the time that an operator confirmed. The committer refuses such jumps in other
    entries, because a wrong clock would drop the ids of jobs and age off rows.
    """

    kind: ClassVar[str] = "accept_time"
    subject: ClassVar[Subject] = Subject.TABLE
    remembered: ClassVar[bool] = False
    time_ms: Annotated[int, Member("time")]

    def validate(self, fold: Fold) -> Verdict:  # noqa: ARG002 (any state will do)
        return APPLY

    def apply(self, fold: Fold) -> None:
        """Changes nothing: the entry has a time, as every entry has."""


def _current_processing(fold: Fold) -> Processing:
    (text,) = fold.row("SELECT json FROM processing_versions ORDER BY version DESC LIMIT 1")
    return processing_from_json(str(text))
