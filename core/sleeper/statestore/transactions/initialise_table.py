"""The first transaction of a table."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import whole_region
from sleeper.processing.check import check_table_processing
from sleeper.processing.text import processing_from_json
from sleeper.schema.json import schema_from_json
from sleeper.statestore.fold import DAY_MS, Fold
from sleeper.statestore.outcome import APPLY, Verdict, refused
from sleeper.statestore.partition_rows import insert_partition
from sleeper.statestore.tables import create_keyed_tables
from sleeper.statestore.tiling import find_subtree_fault
from sleeper.statestore.transactions.transaction import Transaction, new_transaction_id

ORPHAN_AGE_DAYS = 14


@dataclass(frozen=True, slots=True)
class InitialiseTable(Transaction):
    """Gives a table its schema and partitions (parents first). Always number 1.

    `processing_json` holds filters, aggregations and an iterator.
    """

    kind: ClassVar[str] = "initialise_table"
    schema_json: Annotated[str, Member("schema")]
    partitions: Annotated[tuple[Partition, ...], Member(last=True)]
    processing_json: Annotated[str, Member("processing")] = "{}"
    orphan_age_days: int = ORPHAN_AGE_DAYS
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:
        if fold.initialised:
            return refused("the table is initialised already")
        try:
            schema = schema_from_json(self.schema_json)
            check_table_processing(processing_from_json(self.processing_json), schema)
        except InvalidRequestError as error:
            return refused(str(error))
        if not self.partitions:
            return refused("a table needs a root partition")
        root, *below = self.partitions
        if root.parent_id is not None or root.region != whole_region(schema):
            return refused(f"partition {root.id} comes first but is no root of the whole key space")
        if root.is_leaf == bool(below):
            return refused(f"partition {root.id} has the wrong mark: leaf is {root.is_leaf}")
        fault = find_subtree_fault(root.id, root.region, below, levels_max=None)
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        fold.dimensions = len(schema_from_json(self.schema_json).row_keys)
        fold.orphan_age_ms = self.orphan_age_days * DAY_MS
        create_keyed_tables(fold.connection, fold.dimensions)
        fold.run("INSERT INTO schema_versions VALUES (1, ?)", (self.schema_json,))
        fold.run("INSERT INTO processing_versions VALUES (1, ?)", (self.processing_json,))
        keys: dict[str, int] = {}
        for partition in self.partitions:
            parent = None if partition.parent_id is None else keys[partition.parent_id]
            keys[partition.id] = insert_partition(fold, partition, parent)
